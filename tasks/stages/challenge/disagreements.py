"""The rows on which one model is right, or closer to the true score, and the other is not, with their text."""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.scoring.metrics import Array
from tasks.scoring.scored import ScoredSplit

SHOWN = 25


def disagreements(model: ScoredSplit, champion: ScoredSplit | None) -> dict[str, list[dict[str, Any]]]:
    """Return the rows on which the models disagree.

    Args:
        model: The challenger's results.
        champion: The champion's results; None if there is no champion.

    Returns:
        Title to rows, as `rows_lost` returns them: those that only the champion has right (or closer to the true
        score), and those that only the challenger has right. Empty if there is no champion.
    """
    if champion is None:
        return {}
    if model.task.kind == "regression":
        titles = ("Where the new model lies further off", "Where the champion lies further off")
    else:
        titles = ("Only the champion is right", "Only the new model is right")
    return dict(zip(titles, (rows_lost(model, champion), rows_lost(champion, model)), strict=True))


def rows_lost(loser: ScoredSplit, winner: ScoredSplit, shown: int = SHOWN) -> list[dict[str, Any]]:
    """Return the rows on which the loser is worse than the winner.

    For a classification, these are the rows that only the winner has right, in descending order of the loser's
    confidence. For a regression, these are the rows on which the loser's error is larger, in descending order of the
    difference.

    Args:
        loser: The results of one model.
        winner: The results of the other model, on the same rows.
        shown: The maximum number of rows to return.

    Returns:
        Rows with the keys row, sentences, label and prediction (the loser's), and either confidence (the loser's) or
        other (the winner's prediction).
    """
    if loser.task.kind == "regression":
        return [_score(loser, winner, at) for at in _further_off(loser, winner)[:shown]]
    wrong = np.flatnonzero((loser.predicted != loser.labels) & (winner.predicted == winner.labels))
    order = wrong[np.argsort(-loser.confidence[wrong], kind="stable")]
    return [_answer(loser, at) for at in order[:shown]]


def _further_off(loser: ScoredSplit, winner: ScoredSplit) -> Array:
    more = np.abs(loser.predicted - loser.labels) - np.abs(winner.predicted - winner.labels)
    further = np.flatnonzero(more > 0)
    order: Array = further[np.argsort(-more[further], kind="stable")]
    return order


def _answer(loser: ScoredSplit, at: int) -> dict[str, Any]:
    names = loser.task.label_names
    return {
        "row": int(loser.rows[at]),
        "sentences": loser.sentences[at],
        "label": names[loser.labels[at]],
        "prediction": names[loser.predicted[at]],
        "confidence": float(loser.confidence[at]),
    }


def _score(loser: ScoredSplit, winner: ScoredSplit, at: int) -> dict[str, Any]:
    return {
        "row": int(loser.rows[at]),
        "sentences": loser.sentences[at],
        "label": float(loser.labels[at]),
        "prediction": float(loser.predicted[at]),
        "other": float(winner.predicted[at]),
    }
