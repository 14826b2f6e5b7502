"""The arms of a study: runs of the Dag ablation. A file arm.json beside a run.json says what the run is an arm of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from include.runs import Run
from include.stages import BadInput

ARM = "arm.json"


class Mark(BaseModel):
    """What an arm.json says: which configuration of which study the run is, and since when."""

    model_config = ConfigDict(frozen=True)

    study: str
    configuration: str
    task: str
    seed: int
    run: str
    finished: AwareDatetime


@dataclass(frozen=True)
class Arm:
    """A run that was trained and evaluated.

    Attributes:
        mark: what it is.
        keys: of its artifacts, by stage.
        training: what train's training.json says. Its seconds are the steps'; those of the stage hold start-up too.
        summary: what evaluate's metrics.json says.
    """

    mark: Mark
    keys: dict[str, str]
    training: dict[str, Any]
    summary: dict[str, Any]


@dataclass(frozen=True)
class Found:
    """The arms of a study, by configuration and seed, and a line for every run that could not be read."""

    arms: list[Arm]
    warnings: list[str]


def find(runs: Path, study: str) -> Found:
    """The study's arms below runs/; of a configuration and seed the run that finished last.

    Raises BadInput, naming the studies that there are, when this is none of them.
    """
    marks, warnings = _marks(runs)
    newest = {(mark.configuration, mark.seed): mark for mark in marks if mark.study == study}
    if not newest:
        known = ", ".join(sorted({mark.study for mark in marks})) or "none: run the Dag ablation first"
        raise BadInput(f"no run below {runs} is an arm of study.name {study!r}; studies there: {known}")
    arms: list[Arm] = []
    for _, mark in sorted(newest.items()):
        try:
            arms.append(_read(runs, mark))
        except (BadInput, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            warnings.append(f"{mark.configuration} with seed {mark.seed} is left out: {_reason(error, mark)}")
    if not arms:
        raise BadInput(f"no arm of the study {study} can be read: {'; '.join(warnings)}")
    return Found(arms, warnings)


def _marks(runs: Path) -> tuple[list[Mark], list[str]]:
    """All the marks below runs/ from the oldest to the newest, and a line for each that cannot be read."""
    marks: list[Mark] = []
    warnings: list[str] = []
    for file in sorted(runs.glob(f"*/{ARM}")):
        try:
            mark = Mark.model_validate_json(file.read_bytes())
        except (OSError, ValidationError):
            warnings.append(f"{file} is damaged and left out, whatever its study: remove it, or run the arm again")
            continue
        marks.append(mark.model_copy(update={"run": file.parent.name}))
    return sorted(marks, key=lambda mark: (mark.finished, mark.run)), warnings


def _read(runs: Path, mark: Mark) -> Arm:
    run = Run(runs / mark.run)
    evaluate, train = run.artifact("evaluate"), run.artifact("train")
    training = json.loads((train.path / "training.json").read_text(encoding="utf-8"))
    summary = json.loads((evaluate.path / "metrics.json").read_text(encoding="utf-8"))
    keys = {"train": train.manifest.key, "evaluate": evaluate.manifest.key}
    return Arm(mark, keys, training, {name: summary[name] for name in ("metric", "metrics", "interval", "rows")})


def _reason(error: Exception, mark: Mark) -> str:
    if isinstance(error, BadInput):
        return str(error)
    return f"the record of the run {mark.run} is damaged ({error}): run the arm again"


def by_configuration(arms: list[Arm], order: list[str]) -> Iterator[tuple[str, list[Arm]]]:
    """The arms of each configuration, in the order of the list; those that it does not know come last."""
    found = {arm.mark.configuration for arm in arms}
    for name in [*(name for name in order if name in found), *sorted(found - set(order))]:
        yield name, [arm for arm in arms if arm.mark.configuration == name]
