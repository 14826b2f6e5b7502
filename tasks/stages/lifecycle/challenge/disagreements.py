"""The rows on which one model is right, or closer to the true score, and the other is not, with their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.scoring.metrics import Array
from tasks.scoring.predictions import label_sets
from tasks.scoring.scored import ScoredSplit

SHOWN = 25


@dataclass(frozen=True)
class Lost:
    """The rows on which one model is worse than the other.

    Attributes:
        count: The number of all of them.
        rows: The first `SHOWN`, with the keys row, sentences, label and prediction (the worse model's), and either
            confidence (the worse model's) or other (the better model's prediction). For a multi-label task, labels and
            predictions are texts with commas.
    """

    count: int
    rows: list[dict[str, Any]]


def disagreements(model: ScoredSplit, champion: ScoredSplit | None) -> dict[str, Lost]:
    """Return the rows on which the models disagree.

    Args:
        model: The challenger's results.
        champion: The champion's results; None if there is no champion.

    Returns:
        Title to rows: those that only the champion has right (or closer to the true score), and those that only the
        challenger has right. Empty if there is no champion.
    """
    if champion is None:
        return {}
    if model.task.kind == "multilabel":
        titles = ("Where the new model has more labels wrong", "Where the champion has more labels wrong")
    elif model.task.kind == "regression":
        titles = ("Where the new model lies further off", "Where the champion lies further off")
    else:
        titles = ("Only the champion is right", "Only the new model is right")
    return dict(zip(titles, (rows_lost(model, champion), rows_lost(champion, model)), strict=True))


def rows_lost(loser: ScoredSplit, winner: ScoredSplit, shown: int = SHOWN) -> Lost:
    """Return the rows on which the loser is worse than the winner.

    For a classification, these are the rows that only the winner has right, in descending order of the loser's
    confidence. For a regression, these are the rows on which the loser's error is larger, and for a multi-label task
    those on which the loser has more labels wrong, in descending order of the difference.

    Args:
        loser: The results of one model.
        winner: The results of the other model, on the same rows.
        shown: The maximum number of rows to return; all of them are counted.
    """
    order = _only_wrong(loser, winner) if loser.task.kind == "classification" else _further_off(loser, winner)
    describe = {"classification": _answer, "regression": _score, "multilabel": _sets}[loser.task.kind]
    return Lost(len(order), [describe(loser, winner, at) for at in order[:shown]])


def _only_wrong(loser: ScoredSplit, winner: ScoredSplit) -> Array:
    wrong = np.flatnonzero((loser.predicted != loser.labels) & (winner.predicted == winner.labels))
    order: Array = wrong[np.argsort(-loser.confidence[wrong], kind="stable")]
    return order


def _further_off(loser: ScoredSplit, winner: ScoredSplit) -> Array:
    more = _errors(loser) - _errors(winner)
    further = np.flatnonzero(more > 0)
    order: Array = further[np.argsort(-more[further], kind="stable")]
    return order


def _errors(scored: ScoredSplit) -> Array:
    """Return the error of each score, or the number of wrong labels of each row, [n]."""
    errors: Array = np.abs(scored.predicted - scored.labels)
    return errors.sum(axis=1) if errors.ndim == 2 else errors


def _answer(loser: ScoredSplit, _: ScoredSplit, at: int) -> dict[str, Any]:
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


def _sets(loser: ScoredSplit, winner: ScoredSplit, at: int) -> dict[str, Any]:
    sides = {"label": loser.labels, "prediction": loser.predicted, "other": winner.predicted}
    sets = {name: label_sets(loser.task.label_names, side[[at]])[0].as_py() for name, side in sides.items()}
    row = {"row": int(loser.rows[at]), "sentences": loser.sentences[at]}
    return row | {name: ", ".join(labels) or "none" for name, labels in sets.items()}
