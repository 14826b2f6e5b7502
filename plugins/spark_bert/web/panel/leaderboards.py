"""The leaderboards: for each task, the models that the stage leaderboard has compared, and the papers' figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from spark_bert.deployment.places import home
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import mapping, read_record
from spark_bert.web.panel.results import Result, Source, read_artifact, result_of

_STAGE = "leaderboard"


class _Model(BaseModel):
    """A row of the table; see tasks/stages/studies/leaderboard/table.py. What was not run is None."""

    name: str
    seeds: list[int] = []
    runs: list[str] = []
    metric: float | None = None
    interval: tuple[float, float] | None = None
    interval_over: str = ""
    p: float | None = None
    seconds: float | None = None
    training_rows_per_second: float | None = None
    labeling_rows_per_second: float | None = None
    size: float | None = None
    memory: float | None = None


class _Ours(BaseModel):
    name: str
    metric: float | None = None


class _Claim(BaseModel):
    """A figure of a paper, and the best of our models that is of the same kind."""

    table: str
    name: str
    value: float
    ours: _Ours | None = None


class _Task(BaseModel):
    task: str
    metric: str
    rows: list[_Model]
    papers: list[_Claim] = []


class _Leaderboard(BaseModel):
    tasks: list[_Task]
    contradictions: list[str] = []


def describe(rows: Collection[Row], chosen: str = "") -> dict[str, Any]:
    """Return the newest leaderboard of each task, or the chosen one, as JSON.

    Args:
        rows: the runs that the reader may see.
        chosen: the run whose leaderboard the reader wants to see, for the tasks that it has compared.
    """
    results = sorted(_results(rows), key=lambda result: -result.time)
    readable = {row.run for row in rows}
    found = [_find(task, results, chosen) for task in sorted({task for result in results for task in _tasks(result)})]
    return {
        "tasks": [
            {
                **task.model_dump(),
                "rows": [_row(row, readable) for row in task.rows],
                "leaderboard": _about(result),
                "leaderboards": [_about(each) for each in results if task.task in _tasks(each)],
            }
            for result, _, task in filter(None, found)
        ],
        "contradictions": next((whole.contradictions for _, whole, task in filter(None, found) if task.papers), []),
    }


def _find(task: str, results: Iterable[Result], chosen: str) -> tuple[Result, _Leaderboard, _Task] | None:
    """Return the chosen leaderboard of a task, or the first of the results whose file can be read; None if none can."""
    for result in sorted(results, key=lambda result: result.source.run != chosen):
        whole = _content(str(home()), result.key) if task in _tasks(result) else None
        for found in whole.tasks if whole else ():
            if whole and found.task == task:
                return result, whole, found
    return None


def _row(row: _Model, readable: Collection[str]) -> dict[str, Any]:
    """Return a row without the names of runs that the reader may not see."""
    return {**row.model_dump(), "runs": [run if run in readable else "" for run in row.runs]}


def _about(result: Result) -> dict[str, Any]:
    return {**result.source.as_json(), "time": result.time, "href": result.href("leaderboard")}


def _results(rows: Iterable[Row]) -> Iterator[Result]:
    """Yield the results of the stage leaderboard."""
    for row in rows:
        result = _result(str(home()), Source.of(row)) if _STAGE in row.stages else None
        if result is not None:
            yield result


def _tasks(result: Result) -> Collection[str]:
    """Return the tasks that a leaderboard compares models on."""
    return mapping(result.values.get("best")).keys()


@lru_cache(maxsize=1 << 10)
def _result(root: str, source: Source) -> Result | None:
    """Return what the stage has made in a run of the home `root`."""
    return result_of(source, read_record(source.run), _STAGE)


@lru_cache(maxsize=64)
def _content(root: str, key: str) -> _Leaderboard | None:
    """Return the leaderboard in an artifact of the home `root`. It never changes."""
    return read_artifact(_STAGE, key, "leaderboard.json", _Leaderboard)
