"""The rows that tell the two models apart, with their text."""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.scoring.metrics import Array
from tasks.scoring.scored import Scored

SHOWN = 25


def rows_apart(model: Scored, champion: Scored | None) -> dict[str, list[dict[str, Any]]]:
    """The rows that tell the two models apart, by what they tell."""
    if champion is None:
        return {}
    if model.task.kind == "regression":
        titles = ("Where the new model lies further off", "Where the champion lies further off")
    else:
        titles = ("Only the champion is right", "Only the new model is right")
    return dict(zip(titles, (lost(model, champion), lost(champion, model)), strict=True))


def lost(loser: Scored, winner: Scored, shown: int = SHOWN) -> list[dict[str, Any]]:
    """The rows that only the winner has right, those first of which the loser is surest.

    Of scores: the rows on which the loser lies further off than the winner, by the most first. A row has row,
    sentences, label and prediction (the loser's), and confidence (the loser's) or other (the winner's prediction).
    """
    if loser.task.kind == "regression":
        return [_score(loser, winner, at) for at in _further_off(loser, winner)[:shown]]
    wrong = np.flatnonzero((loser.predicted != loser.labels) & (winner.predicted == winner.labels))
    order = wrong[np.argsort(-loser.confidence[wrong], kind="stable")]
    return [_answer(loser, at) for at in order[:shown]]


def _further_off(loser: Scored, winner: Scored) -> Array:
    more = np.abs(loser.predicted - loser.labels) - np.abs(winner.predicted - winner.labels)
    further = np.flatnonzero(more > 0)
    order: Array = further[np.argsort(-more[further], kind="stable")]
    return order


def _answer(loser: Scored, at: int) -> dict[str, Any]:
    names = loser.task.label_names
    return {
        "row": int(loser.rows[at]),
        "sentences": loser.sentences[at],
        "label": names[loser.labels[at]],
        "prediction": names[loser.predicted[at]],
        "confidence": float(loser.confidence[at]),
    }


def _score(loser: Scored, winner: Scored, at: int) -> dict[str, Any]:
    return {
        "row": int(loser.rows[at]),
        "sentences": loser.sentences[at],
        "label": float(loser.labels[at]),
        "prediction": float(loser.predicted[at]),
        "other": float(winner.predicted[at]),
    }
