"""The page for the approval: the verdict, the metrics of both models, and the rows on which they disagree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from include.glue import Task
from tasks.reporting import page
from tasks.scoring.predictions import Array, label_sets
from tasks.scoring.scored import ScoredSplit
from tasks.stages.lifecycle.challenge.comparison import Verdict

TEMPLATE = Path(__file__).with_name("report.html.j2")
SHOWN = 25
#: The titles of the rows that the challenger loses, and of those that the champion loses.
_TITLES = {
    "classification": ("Only the champion is right", "Only the new model is right"),
    "regression": ("Where the new model lies further off", "Where the champion lies further off"),
    "multilabel": ("Where the new model has more labels wrong", "Where the champion has more labels wrong"),
}


@dataclass(frozen=True)
class Lost:
    """The rows on which one model is worse than the other: their number, and the first of them.

    A row has row, sentences, label and prediction (the worse model's), and confidence or other (the better model's
    prediction). For a multi-label task, labels and predictions are texts with commas.
    """

    count: int
    rows: list[dict[str, Any]]


def render(task: Task, verdict: Verdict, apart: dict[str, Lost]) -> str:
    """Return the page. `apart` are the rows on which the models disagree, by title."""
    return page.render(TEMPLATE, task=task, verdict=verdict, apart=apart)


def disagreements(model: ScoredSplit, champion: ScoredSplit | None) -> dict[str, Lost]:
    """Return the rows that the challenger loses and those that the champion loses, by title."""
    if champion is None:
        return {}
    lost = rows_lost(model, champion), rows_lost(champion, model)
    return dict(zip(_TITLES[model.task.kind], lost, strict=True))


def rows_lost(loser: ScoredSplit, winner: ScoredSplit, shown: int = SHOWN) -> Lost:
    """Return the rows on which the loser is worse than the winner; all are counted, and the first ones are described.

    These are the rows of a classification that only the winner has right, by the loser's confidence; otherwise those on
    which the loser's error is larger, by the difference.
    """
    if loser.task.kind == "classification":
        lost = (loser.predicted != loser.labels) & (winner.predicted == winner.labels)
        weight: Array = loser.confidence
    else:
        weight = _errors(loser) - _errors(winner)
        lost = weight > 0
    rows = np.flatnonzero(lost)
    rows = rows[np.argsort(-weight[rows], kind="stable")]
    return Lost(len(rows), [_described(loser, winner, at) for at in rows[:shown]])


def _errors(scored: ScoredSplit) -> Array:
    """Return the error of each score, or the number of wrong labels of each row, [n]."""
    errors: Array = np.abs(scored.predicted - scored.labels)
    return errors.sum(axis=1) if errors.ndim == 2 else errors


def _described(loser: ScoredSplit, winner: ScoredSplit, at: int) -> dict[str, Any]:
    row = {"row": int(loser.rows[at]), "sentences": loser.sentences[at]}
    names = loser.task.label_names
    sides = {"label": loser.labels, "prediction": loser.predicted, "other": winner.predicted}
    match loser.task.kind:
        case "classification":
            confidence = float(loser.confidence[at])
            return row | {name: names[sides[name][at]] for name in ("label", "prediction")} | {"confidence": confidence}
        case "regression":
            return row | {name: float(side[at]) for name, side in sides.items()}
        case "multilabel":
            sets = {name: label_sets(names, side[[at]])[0].as_py() for name, side in sides.items()}
            return row | {name: ", ".join(labels) or "none" for name, labels in sets.items()}
