"""The form, the experiment, and the workers of the Dag `tune`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Context, Param, task

from include.experiment import Experiment
from include.fields.search import Range
from include.search_space import USUAL, Space, space_of
from include.stages import STAGES, BadInput
from include.text import from_yaml
from spark_bert.dag.params import form, resolve

_STAGES = ("validate", "search", "recommend")
_SPACE, _WORKERS = "search.space", "workers"
#: The beginning of the params that say in one line of text what is tried for a field.
_TRIED = "tried."
_RANGE = re.compile(r"\s*([^\s,]+)\s+to\s+([^\s,]+)\s*")
_LINE = rf"^\s*$|^{_RANGE.pattern}$|^\s*[^\s,]+\s*(,\s*[^\s,]+\s*)*$"


def search_form() -> dict[str, Param]:
    """Return the Dag's params: the search and what it tries, and the fields of the experiment that trials read."""
    fields = form(only={part for stage in _STAGES for part in STAGES[stage].reads} | {"runtime"})
    workers = Param(
        1, title="workers", type="integer", minimum=1, maximum=64, section="Search",
        description_md="Processes that work on the search at the same time. Each needs a slot of the pool of trainings "
        "and shares the minutes. Default: **1**.",
    )  # fmt: skip
    first = {key: fields[key] for key in ("experiment", "search.minutes")}
    lines = {f"{_TRIED}{name}": _line(name) for name in USUAL}
    rest = {key: param for key, param in fields.items() if param.schema["section"] == "Search"}
    return {**first, _WORKERS: workers, **lines, **rest, **fields}


def _line(name: str) -> Param:
    entry = USUAL[name]
    steps = f", in steps of {entry.step:g}" if isinstance(entry, Range) and entry.step else ""
    return Param(
        _written(name), title=f"{name}: values to try", type=["string", "null"], section="Search",
        pattern=_LINE, examples=[_written(name)],
        description_md=f"What is tried for `{name}`: two numbers with **to** between them{steps}, or values with "
        f"commas between them. If empty, all trials have the experiment's value. Default: **{_written(name)}**.",
    )  # fmt: skip


def _written(name: str) -> str:
    """Return what the usual space tries for a field, as the form's line has it."""
    entry = USUAL[name]
    if isinstance(entry, Range):
        return f"{entry.low:g} to {entry.high:g}".replace("e-0", "e-")
    return ", ".join(map(str, entry))


def search_experiment(context: Context) -> Experiment:
    """Return the experiment of a run, whose search tries what the lines of the form say and what search.space adds."""
    params = dict(context["params"])
    lines = {name: (params.pop(f"{_TRIED}{name}") or "").strip() for name in USUAL}
    more, _ = params.pop(_SPACE) or {}, params.pop(_WORKERS)
    changed = {name: text for name, text in lines.items() if text != _written(name)}
    experiment = resolve(params)
    if not changed and not more:
        return experiment
    space = {name: entry for name, entry in _plain(space_of(experiment)).items() if name not in changed}
    space |= {name: _entry(name, text) for name, text in changed.items() if text} | more
    if not space:
        raise BadInput(f"nothing is to be tried: fill in one of the lines of the form, or {_SPACE}")
    return resolve({**params, _SPACE: space})


def _plain(space: Space) -> dict[str, Any]:
    return {name: entry.model_dump() if isinstance(entry, Range) else list(entry) for name, entry in space.items()}


def _entry(name: str, text: str) -> Any:
    """Return what a line of the form says, as search.space has it."""
    if (found := _RANGE.fullmatch(text)) is None:
        return [from_yaml(value.strip()) for value in text.split(",")]
    usual = USUAL[name]
    kept = usual.model_dump(include={"log", "step"}) if isinstance(usual, Range) else {}
    return {"low": found[1], "high": found[2], **kept}


@task(task_id="workers", doc_md="list the processes that work on the search")
def list_workers(**context: Any) -> list[int]:
    """Return a number for each process."""
    params: Mapping[str, Any] = context["params"]
    return list(range(params[_WORKERS]))
