"""The searches for better settings, from search.json: live from a run's folder, and then from the stages' artifacts."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from include.runs import SEARCH
from spark_bert.deployment.places import home
from spark_bert.web.panel.addresses import Chosen, Readable
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import fit, read_artifact, read_json, read_record
from spark_bert.web.panel.run_page import list_files

#: The stages that write search.json, the last one first.
_STAGES = ("recommend", "search")


class _Rung(BaseModel):
    """What a trial was when it had taken a share of its steps."""

    step: int
    metric: float | None = None


class _Trial(BaseModel):
    number: int
    run: str
    state: str
    values: dict[str, Any]
    default: bool = False
    rungs: list[_Rung] = []
    metric: float | None = None
    passed: bool | None = None
    seconds: float = 0
    message: str = ""


class _Entry(BaseModel):
    """What is tried for a field: choices, or numbers."""

    choices: list[Any] | None = None
    log: bool = False


class _Side(BaseModel):
    """The models of one side of the comparison, by seed."""

    runs: list[str]
    values: list[float | None]
    mean: float | None = None


class _Comparison(BaseModel):
    seeds: list[int]
    winner: _Side
    default: _Side
    rows: int | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    recommended: str
    reason: str


class _Search(BaseModel):
    search: str
    task: str
    metric: str
    minutes: float
    seconds: float
    space: dict[str, _Entry]
    default: dict[str, Any]
    shares: list[float]
    trials: list[_Trial]
    best: int | None = None
    importance: dict[str, float] = {}
    comparison: _Comparison | None = None


def list_searches(rows: Readable) -> dict[str, Any]:
    """Return how far each search is, the one that has changed last first."""
    found = [(row, search) for row in rows if "preprocess" not in row.stages and (search := _read(row))]
    found.sort(key=lambda pair: -pair[0].changed)
    return {"searches": [{**row.about, "changed": row.changed, **_line(search)} for row, search in found]}


def _line(search: _Search) -> dict[str, Any]:
    best = next((trial.metric for trial in search.trials if trial.number == search.best), None)
    recommended = search.comparison.recommended if search.comparison else ""
    about = search.model_dump(include={"search", "task", "metric", "minutes", "seconds"})
    return {**about, "trials": len(search.trials), "best": best, "recommended": recommended}


def describe(row: Chosen, rows: Readable) -> dict[str, Any]:
    """Return everything about the search of a run, {"search": ""} if it has none. Runs that may not be read are ""."""
    search = _read(row)
    if search is None:
        return {**row.about, "search": ""}
    readable = {other.run for other in rows}
    content = search.model_dump()
    compared = content["comparison"] or {}
    for part in (compared.get(side, {}) for side in ("winner", "default")):
        part |= {"runs": [name if name in readable else "" for name in part.get("runs", ())]}
    for trial in content["trials"]:
        trial["run"] = trial["run"] if trial["run"] in readable else ""
    return {**row.about, **content, "files": list(list_files(row, read_record(row.run)))}


def _read(row: Row) -> _Search | None:
    for stage in _STAGES:
        entry = row.stages.get(stage)
        if entry and entry.made and (found := fit(_Search, read_artifact(stage, entry.key, SEARCH))):
            return found
    return fit(_Search, read_json(home() / "runs", row.run, SEARCH)[0])
