"""Reading what a plan names: the rows that the dataset has, and those of the new files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from include.artifacts import ArtifactStore
from include.experiment import Experiment
from include.glue import SPLITS
from include.stages import BadInput, Transient
from tasks.sources import Source, open_source
from tasks.sources.quarantine import Quarantine
from tasks.stages.ingest.plan import Plan, check_left_alone, check_unchanged, drop_folder
from tasks.stages.ingest.rows import Found, Row, read
from tasks.stages.ingest.version import layout, of_files


@dataclass(frozen=True)
class Intake:
    """What was read.

    Attributes:
        known: split to the rows that the dataset has, or begins with.
        files: name of a new file to what was found in it.
        refused: name of a malformed file to what is wrong with it; nothing of it is taken.
        warnings: what is unusual about the sources and was put right.
    """

    known: Mapping[str, list[Row]]
    files: Mapping[str, Found]
    refused: Mapping[str, str]
    warnings: list[str]

    @property
    def unusable(self) -> int:
        """New rows that cannot be used."""
        return sum(found.read - len(found.rows) for found in self.files.values())


def take_in(experiment: Experiment, store: ArtifactStore, plan: Plan, quarantine: TextIO) -> Intake:
    """Read it all; rows that cannot be used go to the quarantine. A malformed new file does not stop the others.

    Raises BadInput when what the dataset begins with is malformed, Transient when a file is no longer what the plan
    says, or is malformed and may still be being copied.
    """
    try:
        known, warnings = _known(experiment, store, plan, quarantine)
        files, refused, more = _files(experiment, plan, quarantine)
    except BadInput:
        _check_still(experiment, plan)  # half of a file is malformed too
        raise
    _check_still(experiment, plan)
    check_left_alone(drop_folder(experiment.dataset.drop), refused)
    return Intake(known, files, refused, [*warnings, *more])


def _check_still(experiment: Experiment, plan: Plan) -> None:
    check_unchanged(drop_folder(experiment.dataset.drop), plan.files)
    if plan.source and open_source(experiment).fingerprint() != plan.source:
        raise Transient("the experiment's own data were changed while they were read: run ingest again")


def _known(
    experiment: Experiment, store: ArtifactStore, plan: Plan, quarantine: TextIO
) -> tuple[dict[str, list[Row]], list[str]]:
    """The parent's tables, else the experiment's own data, of which dev's and test's rows in train stay (validate
    takes them out); and what to say of them.
    """
    if plan.parent:
        path = store.path("ingest", plan.parent)
        source = open_source(of_files(experiment, path, **layout(experiment.task)))
    else:
        source = open_source(experiment)
    found = {split: _read(experiment, source, split, quarantine) for split in SPLITS}
    warnings = [remark for split in SPLITS for remark in source.remarks(split)]
    for split, part in found.items():
        if part.read > len(part.rows):
            warnings.append(f"{source.file(split)}: {part.read - len(part.rows)} rows cannot be used and were left out")
    return {split: part.rows for split, part in found.items()}, warnings


def _files(
    experiment: Experiment, plan: Plan, quarantine: TextIO
) -> tuple[dict[str, Found], dict[str, str], list[str]]:
    """The new files' rows, all of them training rows; which files are malformed, and why; what to say of the others."""
    found: dict[str, Found] = {}
    refused: dict[str, str] = {}
    warnings: list[str] = []
    for name in plan.files:
        try:
            source = open_source(
                of_files(experiment, drop_folder(experiment.dataset.drop), **dict.fromkeys(SPLITS, name))
            )
            found[name] = _read(experiment, source, "train", quarantine)
            warnings += source.remarks("train")
        except BadInput as error:
            refused[name] = str(error)
    return found, refused, warnings


def _read(experiment: Experiment, source: Source, split: str, quarantine: TextIO) -> Found:
    share = 0.0 if split == "test" else experiment.validation.max_quarantine
    return read(source, split, experiment.task, share, Quarantine(quarantine, split, source.file(split)))
