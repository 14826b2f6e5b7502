"""The drift of new rows from the training rows of the last version (tasks/scoring/drift.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from include.glue import Task
from include.sections import Dataset
from tasks.scoring import drift
from tasks.scoring.drift import Figure, Profile
from tasks.stages.lifecycle.ingest.rows import Row


def measure(old: Sequence[Row], new: Sequence[Row], task: Task, limits: Dataset) -> list[Figure]:
    """Compute all figures of drift.

    Args:
        old: The training rows of the last version; not empty.
        new: The new rows; not empty.
        task: The task.
        limits: The experiment's dataset section.
    """
    return drift.measure(_profile(old, task), _profile(new, task), limits)


def _profile(rows: Sequence[Row], task: Task) -> Profile:
    return Profile.of(task.kind, (row.sentences for row in rows), (_label(row.label, task) for row in rows))


def _label(cell: str, task: Task) -> Any:
    """Return the labels in a cell as Profile.of expects them."""
    match task.kind:
        case "regression":
            return float(cell)
        case "multilabel":
            return task.labels_in(cell)
        case "classification":
            return cell
