"""A version of a dataset: its plan, its record version.json, its tables, and the rows that they are made from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

from include.artifacts import ArtifactStore, Manifest
from include.datasets import Dataset
from include.experiment import Experiment
from include.glue import SPLITS, Task
from include.runs import Run
from include.stages import BadInput
from tasks import digests
from tasks.sources import Record, Source, open_source
from tasks.sources.files import OwnFiles
from tasks.sources.normalize import overlap_key, text_key
from tasks.sources.quarantine import Quarantine
from tasks.stages.lifecycle.ingest.drop_folder import check_left_alone, drop_folder

RECORD = "version.json"
TABLES = {split: f"{split}.tsv" for split in SPLITS}
#: The separators of TSV, which has no quoting, become spaces. An encoder treats all of them as white space.
_BLANK = str.maketrans("\t\r\n", "   ")


@dataclass(frozen=True)
class Plan:
    """What a version is made from: its parent, the version that new rows are added to, and sha256 of new files by name.

    The first version has no parent, and the fingerprint of the experiment's own data as its source.
    """

    parent: str
    source: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the plan by which a version was made."""
        return cls(**json.loads(manifest.fingerprint))


def of_files(experiment: Experiment, path: Path, **data: Any) -> Experiment:
    """Return the experiment with files below a path as its data source, and with these fields of its data section."""
    changed = experiment.data.model_copy(update={"source": "files", "path": str(path), **data})
    return experiment.model_copy(update={"data": changed})


def dataset_of(experiment: Experiment, run: Run) -> Dataset:
    """Return the dataset that an experiment names, in the home of a run."""
    return Dataset(run.store.root.parent, experiment.dataset.name or experiment.data.task)


def layout(task: Task) -> dict[str, Any]:
    """Return the fields of the data section for a version's tables."""
    columns = {"sentence2": "sentence2"} if len(task.sentences) == 2 else {}
    return {**TABLES, "columns": columns, "delimiter": "", "encoding": "utf-8", "label_map": {}}


def identity(task: Task) -> dict[str, Any]:
    """Return the properties of a task that all versions of a dataset must share."""
    found: dict[str, Any] = {
        "task": task.name,
        "sentences": len(task.sentences),
        "labels": list(task.labels),
        "score_range": task.score_range and list(task.score_range),
    }
    return found | ({"separator": task.separator} if task.kind == "multilabel" else {})


def record_of(store: ArtifactStore, version: str) -> dict[str, Any]:
    """Read the version.json of a version."""
    artifact = store.find("ingest", version)
    if artifact is None:
        raise BadInput(
            f"{store.path('ingest', version)}, the last version of the dataset, is missing: restore it from a backup, "
            "or start a new dataset with another dataset.name"
        )
    found: dict[str, Any] = json.loads((artifact.path / RECORD).read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True, slots=True)
class Row:
    """A usable row: its texts, its label as written in the source ("" in test), its text_key and its overlap_key."""

    sentences: tuple[str, ...]
    label: str
    key: int
    overlap: int


@dataclass(frozen=True)
class UsableRows:
    """The usable rows of a split or file, their records with their locations, and the number of all rows."""

    rows: list[Row]
    records: list[Record]
    read: int
    quarantine: Quarantine


@dataclass(frozen=True)
class Inputs:
    """The rows that a plan names.

    Attributes:
        known: Split to the rows of the last version or, for the first version, of the experiment's own data.
        files: Name of a new file to its usable rows, which are training rows.
        refused: Name of a malformed file to the error. None of its rows are used.
    """

    known: Mapping[str, list[Row]]
    files: Mapping[str, UsableRows]
    refused: Mapping[str, str]
    warnings: list[str]


def read_inputs(experiment: Experiment, store: ArtifactStore, plan: Plan, quarantine: TextIO) -> Inputs:
    """Read everything that a plan names, and write unusable rows to the quarantine, one JSON object per line.

    A malformed new file does not affect the others. Rows of dev and test that also occur in train are kept here.
    """

    def usable(source: Source, split: str) -> UsableRows:
        share = 0.0 if split == "test" else experiment.validation.max_quarantine
        return read(source, split, experiment.task, share, Quarantine(quarantine, split, source.file(split)))

    version = of_files(experiment, store.path("ingest", plan.parent), **layout(experiment.task))
    source = open_source(version if plan.parent else experiment)
    known = {split: usable(source, split) for split in SPLITS}
    warnings = [remark for split in SPLITS for remark in source.remarks(split)]
    for split, part in known.items():
        if part.read > len(part.rows):
            warnings.append(f"{source.file(split)}: {part.read - len(part.rows)} rows cannot be used and were skipped")
    files: dict[str, UsableRows] = {}
    refused: dict[str, str] = {}
    folder = drop_folder(experiment.dataset.drop)
    for name in plan.files:
        try:
            dropped = OwnFiles(experiment.data, experiment.task, folder / name)
            files[name] = usable(dropped, "train")
            warnings += dropped.remarks("train")
        except BadInput as error:
            refused[name] = str(error)
    digests.check_unchanged()  # before the malformed ones are looked at again
    check_left_alone(folder, refused)
    return Inputs({split: part.rows for split, part in known.items()}, files, refused, warnings)


def read(source: Source, split: str, task: Task, share: float, quarantine: Quarantine) -> UsableRows:
    """Read the usable rows of a split; raise BadInput if more than this share, from 0 to 1, cannot be used."""
    records = list(quarantine.usable(source.records(split), task))
    rows = [Row(one.sentences, one.label, text_key(one.sentences), overlap_key(one.sentences)) for one in records]
    summary = quarantine.tally.summary(task)
    if summary.set_aside > math.floor(share * summary.read):
        raise BadInput(
            f"{source.file(split)}: {summary.set_aside:,} of {summary.read:,} rows cannot be used{summary.examples}; "
            "nothing was ingested: correct them (validation.max_quarantine allows a share of "
            f"{share:g}, and 0 in test){summary.hints}"
        )
    return UsableRows(rows, records, summary.read, quarantine)


def write_tables(folder: Path, rows: Mapping[str, Iterable[Row]], task: Task) -> None:
    """Write train.tsv, dev.tsv and test.tsv into a folder, as `data.source: files` can read them."""
    names = ["sentence", "sentence2"][: len(task.sentences)]
    for split, file in TABLES.items():
        label = [] if split == "test" else ["label"]
        with (folder / file).open("w", encoding="utf-8", newline="\n") as stream:
            stream.write("\t".join([*names, *label]) + "\n")
            for row in rows[split]:
                fields = [*row.sentences, row.label] if label else row.sentences
                stream.write("\t".join(field.translate(_BLANK) for field in fields) + "\n")
