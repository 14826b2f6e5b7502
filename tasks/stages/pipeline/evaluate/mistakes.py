"""The worst mistakes of the model, with their text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.scoring.predictions import label_sets
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.thresholds import HALF
from tasks.sources.values import python_value
from tasks.stages.pipeline.evaluate.rows import NOTHING, Kept

SHOWN = 20


def worst(scored: ScoredSplit, kept: Kept = NOTHING, shown: int = SHOWN) -> list[dict[str, Any]]:
    """Return the worst mistakes.

    For a classification these are the wrong rows with the highest confidence, for a multi-label task those with a wrong
    label whose probability is farthest from its threshold, and for a regression those with the largest errors.

    Args:
        scored: The scored split.
        kept: Columns of the user's file, such as an id. Those that are the text itself are left out.
        shown: The maximum number of rows.

    Returns:
        Rows with the keys row, kept, sentences, label, prediction, and confidence or error, worst first. For a
        multi-label task, label and prediction are lists, followed by the wrong label (worst) and its probability.
    """
    found = _FINDERS[scored.task.kind](scored, shown)
    places = [int(np.flatnonzero(scored.rows == row["row"])[0]) for row in found]
    values = {name: [_shown(column[at]) for at in places] for name, column in kept.items()}
    texts = [row["sentences"] for row in found]
    others = {name: column for name, column in values.items() if any(map(_is_other, column, texts))}
    return [{**row, "kept": {name: column[at] for name, column in others.items()}} for at, row in enumerate(found)]


def _shown(value: pa.Scalar) -> str:
    found = python_value(value)
    return "" if found is None else str(found)


def _is_other(value: str, texts: Sequence[str]) -> bool:
    return value not in texts


def _most_confident(scored: ScoredSplit, shown: int) -> list[dict[str, Any]]:
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


def _surest(scored: ScoredSplit, shown: int) -> list[dict[str, Any]]:
    thresholds = HALF if scored.thresholds is None else scored.thresholds
    wrong = scored.labels != scored.predicted
    distance = np.where(wrong, np.abs(scored.probabilities - thresholds), -1.0)
    order = np.argsort(-distance.max(axis=1), kind="stable")
    chosen = order[wrong[order].any(axis=1)][:shown]
    names = scored.task.label_names
    labels, predicted = (label_sets(names, side[chosen]) for side in (scored.labels, scored.predicted))
    return [
        {
            "row": int(scored.rows[at]),
            "sentences": scored.sentences[at],
            "label": labels[place].as_py(),
            "prediction": predicted[place].as_py(),
            "worst": scored.task.label_names[distance[at].argmax()],
            "probability": float(scored.probabilities[at, distance[at].argmax()]),
        }
        for place, at in enumerate(chosen)
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


_FINDERS = {"classification": _most_confident, "multilabel": _surest, "regression": _furthest}
