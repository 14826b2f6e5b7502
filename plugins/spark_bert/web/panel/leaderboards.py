"""The leaderboards: for each task, the models that the stage leaderboard has compared, and the papers' figures."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from spark_bert.deployment.places import home
from spark_bert.web.panel.addresses import Readable
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import fit, read_artifact, read_record


class _Model(BaseModel):
    """A row of the table. What was not run is None."""

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


def describe(rows: Readable, run: str = "") -> dict[str, Any]:
    """Return the newest leaderboard of each task, or for the tasks that a run has compared, the one of that run."""
    boards = [board for row in rows if "leaderboard" in row.stages and (board := _read(str(home()), row))]
    newest_first = sorted(boards, key=lambda board: -board[0]["time"])
    chosen_first = sorted(newest_first, key=lambda board: board[0]["run"] != run)
    readable = {row.run for row in rows}
    tasks, contradictions = [], None
    for name in sorted({task.task for _, whole in boards for task in whole.tasks}):
        with_task = [(about, whole, task) for about, whole in chosen_first for task in whole.tasks if task.task == name]
        about, whole, task = with_task[0]
        ours = [
            {**row.model_dump(), "runs": [name if name in readable else "" for name in row.runs]} for row in task.rows
        ]
        others = [about for about, whole in newest_first if any(task.task == name for task in whole.tasks)]
        tasks.append({**task.model_dump(), "rows": ours, "leaderboard": about, "leaderboards": others})
        if contradictions is None and task.papers:
            contradictions = whole.contradictions
    return {"tasks": tasks, "contradictions": contradictions or []}


@lru_cache(maxsize=1 << 8)
def _read(root: str, row: Row) -> tuple[dict[str, Any], _Leaderboard] | None:
    """Return the leaderboard that a run of the home `root` has made, and a link to it; None if it cannot be read."""
    entry = read_record(row.run).stages.get("leaderboard")
    if entry is None or not entry.made:
        return None
    whole = fit(_Leaderboard, read_artifact("leaderboard", entry.key, "leaderboard.json"))
    href = row.href("leaderboard", entry, "leaderboard")
    return ({**row.source, "time": entry.ended or row.changed, "href": href}, whole) if whole else None
