"""A version of a dataset as files: three tables in the layout of data.source files, and version.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from include.artifacts import ArtifactStore
from include.experiment import Experiment
from include.glue import SPLITS, Task
from include.stages import BadInput
from tasks.stages.ingest.rows import Row

RECORD = "version.json"
_TABLES = {split: f"{split}.tsv" for split in SPLITS}
#: What separates fields and rows in TSV, which knows no quotes; to an encoder all of it is white space.
_BLANK = str.maketrans("\t\r\n", "   ")


def of_files(experiment: Experiment, path: Path, **data: Any) -> Experiment:
    """The experiment on files below path, with other fields of its section data on top."""
    changed = experiment.data.model_copy(update={"source": "files", "path": str(path), **data})
    return experiment.model_copy(update={"data": changed})


def layout(task: Task) -> dict[str, Any]:
    """How the section data describes a version's tables. A pair's second column makes own data a task on pairs."""
    return {**_TABLES, "columns": {"sentence2": "sentence2"} if len(task.sentences) == 2 else {}}


def identity(task: Task) -> dict[str, Any]:
    """What all versions of a dataset share."""
    return {
        "task": task.name,
        "sentences": len(task.sentences),
        "labels": list(task.labels),
        "score_range": task.score_range and list(task.score_range),
    }


def record_of(store: ArtifactStore, version: str) -> dict[str, Any]:
    """A version's version.json. Raises BadInput when the version is gone or damaged."""
    artifact = store.find("ingest", version)
    if artifact is None:
        raise BadInput(
            f"{store.path('ingest', version)}, the last version of the dataset, is gone: put it back from a copy, or "
            "begin anew under another dataset.name"
        )
    found: dict[str, Any] = json.loads((artifact.path / RECORD).read_text(encoding="utf-8"))
    return found


def write_tables(folder: Path, rows: Mapping[str, Iterable[Row]], task: Task) -> None:
    """Write train.tsv, dev.tsv and test.tsv."""
    names = ["sentence", "sentence2"][: len(task.sentences)]
    for split, file in _TABLES.items():
        label = [] if split == "test" else ["label"]
        with (folder / file).open("w", encoding="utf-8", newline="\n") as stream:
            stream.write("\t".join([*names, *label]) + "\n")
            for row in rows[split]:
                fields = [*row.sentences, row.label] if label else row.sentences
                stream.write("\t".join(field.translate(_BLANK) for field in fields) + "\n")
