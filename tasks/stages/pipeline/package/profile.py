"""The profile of the training rows, with which the rows that a model answers are compared to find drift."""

from __future__ import annotations

from include.glue import Task
from tasks.encoder.batching import TokenTable
from tasks.encoder.tokens import COPY
from tasks.scoring.drift import Profile
from tasks.scoring.predictions import label_names


def training_profile(task: Task, train: TokenTable) -> Profile:
    """Count the rows that a model has learned from.

    Their texts are cleaned but not truncated, and a text that is divided into windows counts once. Rows that
    preprocessing.sample has left out are not in the table. The copies that augmentation has added do not count, since
    the rows that the model answers are not changed in that way, and synonyms are words that nobody has written.

    Args:
        task: The task.
        train: The training split.
    """
    rows = train.documents[train.rows[train.documents] < COPY]
    labels = label_names(task, train.labels[rows])
    return Profile.of(task.kind, train.sentences(rows), labels.tolist())
