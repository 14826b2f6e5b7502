"""Read what a plan names: the rows of the dataset, and the rows of the new files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from include.artifacts import ArtifactStore
from include.experiment import Experiment
from include.glue import SPLITS
from include.stages import BadInput
from tasks import outside
from tasks.sources import Source, open_source
from tasks.sources.files import OwnFiles
from tasks.sources.quarantine import Quarantine
from tasks.stages.lifecycle.ingest.plan import Plan, check_left_alone, drop_folder
from tasks.stages.lifecycle.ingest.rows import Row, UsableRows, read
from tasks.stages.lifecycle.ingest.version import layout, of_files


@dataclass(frozen=True)
class Inputs:
    """The rows that a plan names.

    Attributes:
        known: Split to the rows of the last version or, for the first version, of the experiment's own data.
        files: Name of a new file to its usable rows.
        refused: Name of a malformed file to the error. None of its rows are used.
        warnings: One sentence per irregularity of the sources that was corrected while reading.
    """

    known: Mapping[str, list[Row]]
    files: Mapping[str, UsableRows]
    refused: Mapping[str, str]
    warnings: list[str]

    @property
    def unusable(self) -> int:
        """The number of new rows that cannot be used."""
        return sum(found.read - len(found.rows) for found in self.files.values())


def read_inputs(experiment: Experiment, store: ArtifactStore, plan: Plan, quarantine: TextIO) -> Inputs:
    """Read everything that a plan names. A malformed new file does not affect the others.

    Args:
        experiment: The experiment.
        store: The store with the versions of the dataset.
        plan: The plan.
        quarantine: Receives the rows that cannot be used, one JSON object per line.

    Raises:
        BadInput: If the experiment's own data or the last version is malformed.
        Transient: If a file is malformed and may still be being copied.
    """
    known, warnings = _known(experiment, store, plan, quarantine)
    files, refused, more = _files(experiment, plan, quarantine)
    outside.check_unchanged()  # before the malformed ones are looked at again
    check_left_alone(drop_folder(experiment.dataset.drop), refused)
    return Inputs(known, files, refused, [*warnings, *more])


def _known(
    experiment: Experiment, store: ArtifactStore, plan: Plan, quarantine: TextIO
) -> tuple[dict[str, list[Row]], list[str]]:
    """Read the parent's tables or, for the first version, the experiment's own data, and return rows and warnings.

    Rows of dev and test that also occur in train are kept here; validate removes them.
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
            warnings.append(f"{source.file(split)}: {part.read - len(part.rows)} rows cannot be used and were skipped")
    return {split: part.rows for split, part in found.items()}, warnings


def _files(
    experiment: Experiment, plan: Plan, quarantine: TextIO
) -> tuple[dict[str, UsableRows], dict[str, str], list[str]]:
    """Read the new files' rows, which are training rows; return them, the malformed files' errors, and warnings."""
    found: dict[str, UsableRows] = {}
    refused: dict[str, str] = {}
    warnings: list[str] = []
    folder = drop_folder(experiment.dataset.drop)
    for name in plan.files:
        try:
            data = of_files(experiment, folder, **dict.fromkeys(SPLITS, name)).data
            source = OwnFiles(data, experiment.task, folder)
            found[name] = _read(experiment, source, "train", quarantine)
            warnings += source.remarks("train")
        except BadInput as error:
            refused[name] = str(error)
    return found, refused, warnings


def _read(experiment: Experiment, source: Source, split: str, quarantine: TextIO) -> UsableRows:
    share = 0.0 if split == "test" else experiment.validation.max_quarantine
    return read(source, split, experiment.task, share, Quarantine(quarantine, split, source.file(split)))
