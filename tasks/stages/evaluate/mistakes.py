"""The worst mistakes of the model, with their text."""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.scoring.scored import ScoredSplit

SHOWN = 20


def worst(scored: ScoredSplit, shown: int = SHOWN) -> list[dict[str, Any]]:
    """Return the wrong rows with the highest confidence or, for a regression, those with the largest errors.

    Args:
        scored: The scored split.
        shown: The maximum number of rows.

    Returns:
        Rows with the keys row, sentences, label, prediction, and confidence or error, worst first.
    """
    if scored.task.kind == "regression":
        return _furthest(scored, shown)
    wrong = np.flatnonzero(scored.labels != scored.predicted)
    order = wrong[np.argsort(-scored.confidence[wrong], kind="stable")][:shown]
    names = scored.task.label_names
    return [
        {
            "row": int(scored.rows[at]),
            "sentences": scored.sentences[at],
            "label": names[scored.labels[at]],
            "prediction": names[scored.predicted[at]],
            "confidence": float(scored.confidence[at]),
        }
        for at in order
    ]


def _furthest(scored: ScoredSplit, shown: int) -> list[dict[str, Any]]:
    error = scored.predicted - scored.labels
    order = np.argsort(-np.abs(error), kind="stable")[:shown]
    return [
        {
            "row": int(scored.rows[at]),
            "sentences": scored.sentences[at],
            "label": float(scored.labels[at]),
            "prediction": float(scored.predicted[at]),
            "error": float(error[at]),
        }
        for at in order
    ]
