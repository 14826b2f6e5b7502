"""Two models on the same rows: how far apart they are, and what so few rows can tell.

Of a classifier, a row is right or wrong. Only the rows that one model alone has right tell the two apart: McNemar's
exact test (McNemar 1947) asks whether they fall to both sides alike, and the interval of the difference of accuracies
is the adjusted Wald interval for paired shares (Bonett & Price 2012, J. Educ. Behav. Stat. 37, 479-488). Scores have
no right or wrong, so the difference of the task's metric is bootstrapped over the rows (Efron 1979), the same rows
for both models in every draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from include.glue import Task
from tasks.scoring.intervals import LEVEL, RESAMPLES, Interval
from tasks.scoring.metrics import Array, pearson, spearman

Outcome = Literal["worse", "not worse", "undecided"]


@dataclass(frozen=True)
class Comparison:
    """The model beside the champion on some rows. What cannot be computed is None.

    Attributes:
        metric: what is compared: accuracy, or of scores the task's metric.
        rows: how many.
        model: the metric of the new model.
        champion: that of the champion.
        difference: the model's less the champion's.
        interval: its 95 % interval.
        p: of the paired test that there is no difference, two-sided.
        only_model: rows that the model alone has right; None for scores.
        only_champion: rows that the champion alone has right; None for scores.
    """

    metric: str
    rows: int
    model: float | None
    champion: float | None
    difference: float | None = None
    interval: Interval | None = None
    p: float | None = None
    only_model: int | None = None
    only_champion: int | None = None


def compare(task: Task, labels: Array, model: Array, champion: Array) -> Comparison:
    """Both models' predictions of the same labels; class ids or scores, [n] each, with n of 1 or more."""
    if task.kind == "regression":
        return _scores(task, labels, model, champion)
    return _answers(model == labels, champion == labels)


def outcome(found: Comparison, margin: float) -> Outcome:
    """What the comparison says of a model that may lose up to the margin.

    worse: it lost more than the margin, and the paired test calls the difference more than chance.
    not worse: the whole interval of the difference lies at or above -margin.
    undecided: neither. The loss may lie beyond the margin or within it, and so few rows cannot tell; so it is where
    the metric is undefined. A small loss that is certain, but may lie to either side of the margin, belongs here too.

    Equal predictions have a difference of 0 whose interval still has the width that the rows allow: 872 tell within
    0.0032, so 0.02 holds, while 50 tell within 0.053 only. A margin of 0 asks a classifier to be found better.
    """
    if found.difference is None or found.interval is None or found.p is None:
        return "undecided"
    if found.difference < -margin and found.p < 1 - LEVEL:
        return "worse"
    return "not worse" if found.interval[0] >= -margin else "undecided"


def mcnemar(only_model: int, only_champion: int) -> float:
    """The exact two-sided p that rows which one model alone has right fall to both alike."""
    apart = only_model + only_champion
    return float(stats.binomtest(only_model, apart).pvalue) if apart else 1.0


def bonett_price(only_model: int, only_champion: int, rows: int) -> Interval:
    """The adjusted Wald interval of the difference of two paired shares: one row more to each side, two in all."""
    ours, theirs, whole = (only_model + 1) / (rows + 2), (only_champion + 1) / (rows + 2), rows + 2
    difference = ours - theirs
    half = stats.norm.ppf((1 + LEVEL) / 2) * math.sqrt((ours + theirs - difference**2) / whole)
    return max(float(difference - half), -1.0), min(float(difference + half), 1.0)


def _answers(model: Array, champion: Array) -> Comparison:
    """Of a classifier: whether each row is right, [n]."""
    rows, ours, theirs = len(model), int((model & ~champion).sum()), int((champion & ~model).sum())
    return Comparison(
        "accuracy",
        rows,
        float(model.mean()),
        float(champion.mean()),
        (ours - theirs) / rows,
        bonett_price(ours, theirs, rows),
        mcnemar(ours, theirs),
        ours,
        theirs,
    )


def _scores(task: Task, labels: Array, model: Array, champion: Array) -> Comparison:
    """Of a regression. p is twice the smaller share of draws on one side of 0 (Davison & Hinkley 1997, chapter 4)."""
    metric = {"pearson": pearson, "spearman": spearman}[task.metric]
    random, rows = np.random.default_rng(0), len(labels)
    ours, theirs = metric(labels, model), metric(labels, champion)
    values = Comparison(task.metric, rows, _defined(ours), _defined(theirs))
    if values.model is None or values.champion is None:
        return values
    drawn = (random.integers(rows, size=rows) for _ in range(RESAMPLES))
    draws = np.array([metric(labels[at], model[at]) - metric(labels[at], champion[at]) for at in drawn])
    draws = draws[np.isfinite(draws)]  # without those whose labels or scores are all equal
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    side = min((draws <= 0).sum(), (draws >= 0).sum())
    p = min(2 * (int(side) + 1) / (len(draws) + 1), 1.0)
    return Comparison(task.metric, rows, ours, theirs, ours - theirs, (float(low), float(high)), p)


def _defined(value: float) -> float | None:
    return value if math.isfinite(value) else None
