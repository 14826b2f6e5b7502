"""The arms of a study, which are runs of the Dag ablation. The arm.json of a run names the study and the arm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from include.experiment import Experiment
from include.glue import Task
from include.runs import ARM, Run
from include.stages import BadInput


class ArmMetadata(BaseModel):
    """The content of an arm.json: the study, the configuration and the seed of the run, and when it finished."""

    model_config = ConfigDict(frozen=True)

    study: str
    configuration: str
    task: str
    seed: int
    run: str
    finished: AwareDatetime


@dataclass(frozen=True)
class Arm:
    """A trained and evaluated run of a study, with its training.json and what the study shows of its metrics.json."""

    metadata: ArmMetadata
    task: Task
    keys: dict[str, str]
    predictions: Path  # of the dev rows
    training: dict[str, Any]
    summary: dict[str, Any]


def find(runs: Path, study: str) -> tuple[list[Arm], list[str]]:
    """Return the arms of a study, sorted by configuration and seed, and a line per run that cannot be read.

    If a configuration and seed has several runs, the last one to finish counts.
    """
    found, warnings = _all_metadata(runs)
    newest = {(metadata.configuration, metadata.seed): metadata for metadata in found if metadata.study == study}
    if not newest:
        known = ", ".join(sorted({metadata.study for metadata in found})) or "none: run the Dag ablation first"
        raise BadInput(f"no run below {runs} is an arm of study.name {study!r}; existing studies: {known}")
    arms: list[Arm] = []
    for _, metadata in sorted(newest.items()):
        try:
            arms.append(_read(runs, metadata))
        except (BadInput, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            reason = str(error)
            if not isinstance(error, BadInput):
                reason = f"the record of the run {metadata.run} is damaged ({error}): run the arm again"
            warnings.append(f"{metadata.configuration} with seed {metadata.seed} is left out: {reason}")
    if not arms:
        raise BadInput(f"no arm of the study {study} can be read: {'; '.join(warnings)}")
    return arms, warnings


def _all_metadata(runs: Path) -> tuple[list[ArmMetadata], list[str]]:
    """Read every arm.json, sorted from the oldest to the newest, with one warning per file that cannot be read."""
    found: list[ArmMetadata] = []
    warnings: list[str] = []
    for file in sorted(runs.glob(f"*/{ARM}")):
        try:
            metadata = ArmMetadata.model_validate_json(file.read_bytes())
        except (OSError, ValidationError):
            warnings.append(f"{file} is damaged and left out, so its study is unknown: remove it or run the arm again")
            continue
        found.append(metadata.model_copy(update={"run": file.parent.name}))
    return sorted(found, key=lambda metadata: (metadata.finished, metadata.run)), warnings


def _read(runs: Path, metadata: ArmMetadata) -> Arm:
    run = Run(runs / metadata.run)
    evaluate, train = run.artifact("evaluate"), run.artifact("train")
    training = json.loads((train.path / "training.json").read_text(encoding="utf-8"))
    summary = json.loads((evaluate.path / "metrics.json").read_text(encoding="utf-8"))
    keys = {"train": train.manifest.key, "evaluate": evaluate.manifest.key}
    summary = {name: summary[name] for name in ("metric", "metrics", "interval", "rows")}
    task = Experiment.model_validate(run.record()["experiment"]).task
    return Arm(metadata, task, keys, evaluate.path / "predictions.parquet", training, summary)


def by_configuration(arms: list[Arm], order: list[str]) -> Iterator[tuple[str, list[Arm]]]:
    """Yield the name and the arms of each configuration, in this order; those that are not listed come last."""
    found = {arm.metadata.configuration for arm in arms}
    for name in [*(name for name in order if name in found), *sorted(found - set(order))]:
        yield name, [arm for arm in arms if arm.metadata.configuration == name]
