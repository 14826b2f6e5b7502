"""A version of a dataset: its plan, its record version.json, and the layout of its tables."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from include.artifacts import ArtifactStore, Manifest
from include.datasets import Dataset
from include.experiment import Experiment
from include.glue import SPLITS, Task
from include.runs import Run
from include.stages import BadInput

RECORD = "version.json"
TABLES = {split: f"{split}.tsv" for split in SPLITS}


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
