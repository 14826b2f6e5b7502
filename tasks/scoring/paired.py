"""Paired comparison of two models on the same rows: a new model and the champion, or two rows of a leaderboard.

Classifiers are compared by accuracy. Only the rows that exactly one model has right matter: McNemar's exact test
(McNemar 1947) asks whether both models win equally many of them, and the interval of the difference of accuracies is
the adjusted Wald interval for paired proportions (Bonett & Price 2012, J. Educ. Behav. Stat. 37, 479-488). Regressions
and multi-label models are compared by the task's metric, whose difference is bootstrapped (Efron 1979) with the same
rows for both models in each draw.

Two settings with several models each, one per seed, are compared by the task's metric: both rows and seeds are drawn
(the pigeonhole bootstrap: Owen 2007, Ann. Appl. Stat. 1, 386-411), since neither is all that there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
from scipy import stats

from include.glue import Task
from include.paired import LEVEL, Interval, of_answers
from tasks.encoder.labels import from_column
from tasks.scoring.intervals import correlations, f1_of_sets, metric_of_rows, resampled_rows, resampled_sets
from tasks.scoring.metrics import as_json, multilabel_metrics, pearson, spearman
from tasks.scoring.predictions import Array

Outcome = Literal["worse", "not worse", "undecided"]


@dataclass(frozen=True)
class Comparison:
    """The comparison of the challenger (model) with the champion on some rows. Undefined values are None."""

    metric: str  # accuracy, or the task's metric for a regression or several labels
    rows: int
    model: float | None
    champion: float | None
    difference: float | None = None  # the challenger's metric minus the champion's
    interval: Interval | None = None  # of the difference
    p: float | None = None  # of the two-sided paired test for the hypothesis that there is no difference
    only_model: int | None = None  # rows that only the challenger has right; None unless accuracy is compared
    only_champion: int | None = None


def compare(task: Task, labels: Array, model: Array, champion: Array) -> Comparison:
    """Compare the predictions of two models: as labels, class ids or scores, [n], or zeros and ones, [n, labels]."""
    if labels.ndim == 2:
        return _sets(task, labels, model, champion)
    if task.kind == "regression":
        return _scores(task, labels, model, champion)
    return _answers(model == labels, champion == labels)


def compare_seeds(task: Task, labels: Array, models: Sequence[Array], champions: Sequence[Array]) -> Comparison:
    """Compare the means of the task's metric over several models and several champions, of one seed each.

    The predictions are those of `compare`, [seeds] of each. The spread of a mean is not what it is among the few seeds
    that are there unless one less of them is drawn (McCarthy & Snowden 1985, Vital Health Stat. 2, 95), and few seeds
    do not know their own spread: see `_widened`.
    """
    random, sides, every = np.random.default_rng(0), (models, champions), np.arange(len(labels))[None]
    values = [np.ravel([metric_of_rows(task, task.metric, labels, one, every) for one in side]) for side in sides]
    ours, theirs = (float(side.mean()) for side in values)
    if not np.isfinite([ours, theirs]).all():
        both = as_json({"ours": ours, "theirs": theirs})
        return Comparison(task.metric, len(labels), both["ours"], both["theirs"])
    differences = []
    for rows in resampled_rows(len(labels)):
        means = []
        for side in sides:
            each = np.stack([metric_of_rows(task, task.metric, labels, one, rows) for one in side])  # [seeds, draws]
            seeds = random.integers(len(side), size=(max(len(side) - 1, 1), len(rows)))
            means.append(np.take_along_axis(each, seeds, 0).mean(axis=0))
        differences.append(means[0] - means[1])
    draws = np.concatenate(differences)
    widened = _widened(draws[np.isfinite(draws)], ours - theirs, values)
    return _bootstrapped(task.metric, len(labels), ours, theirs, widened)


def _widened(draws: Array, difference: float, values: Sequence[Array]) -> Array:
    """Spread the draws of a difference as Student's t does, given the metric of each model, [seeds], of both sides.

    The degrees of freedom are Satterthwaite's (1946, Biometrics Bull. 2, 110-114) for two variances, that over seeds
    and that over rows, of which only the former is estimated from few numbers.
    """
    over_seeds = sum(float(side.var(ddof=1)) / len(side) for side in values if len(side) > 1)
    if not over_seeds:
        return draws
    free = sum(len(side) - 1 for side in values) * max(1.0, float(draws.var()) / over_seeds) ** 2
    quantile = (1 + LEVEL) / 2
    ratio = float(stats.t.ppf(quantile, free) / stats.norm.ppf(quantile))
    return difference + ratio * (draws - difference)


def read_predictions(file: Path) -> tuple[Array, Array, Array]:
    """Return row numbers, labels and predictions of the dev rows as evaluate has written them, sorted by row."""
    table = pq.read_table(file, columns=["row", "label", "prediction"]).sort_by("row")
    return table["row"].to_numpy(), from_column(table["label"]), from_column(table["prediction"])


def outcome(found: Comparison, margin: float) -> Outcome:
    """Decide whether the challenger is worse than the champion by more than the margin.

    It is "worse" if the loss exceeds the margin and the paired test is significant; "not worse" if the whole interval
    of the difference is at or above -margin; otherwise "undecided", because the rows do not show on which side of the
    margin the loss is, or because the metric is undefined. The interval of identical predictions still has a width:
    0.0032 to each side for 872 rows, and 0.053 for 50 rows. With a margin of 0, a classifier must be proven better.
    """
    if found.difference is None or found.interval is None or found.p is None:
        return "undecided"
    if found.difference < -margin and found.p < 1 - LEVEL:
        return "worse"
    return "not worse" if found.interval[0] >= -margin else "undecided"


def _answers(model: Array, champion: Array) -> Comparison:
    """Compare two classifiers, given whether each row is right, [n]."""
    rows, ours, theirs = len(model), int((model & ~champion).sum()), int((champion & ~model).sum())
    found, right = of_answers(ours, theirs, rows), (float(model.mean()), float(champion.mean()))
    return Comparison("accuracy", rows, *right, found.value, found.interval, found.p, ours, theirs)


def _scores(task: Task, labels: Array, model: Array, champion: Array) -> Comparison:
    metric = {"pearson": pearson, "spearman": spearman}[task.metric]
    ours, theirs = as_json({"ours": metric(labels, model), "theirs": metric(labels, champion)}).values()
    if ours is None or theirs is None:
        return Comparison(task.metric, len(labels), ours, theirs)
    differences = [
        correlations(labels[at], model[at], task.metric) - correlations(labels[at], champion[at], task.metric)
        for at in resampled_rows(len(labels))
    ]
    draws = np.concatenate(differences)
    draws = draws[np.isfinite(draws)]  # the metric is undefined in draws whose labels or scores are all equal
    return _bootstrapped(task.metric, len(labels), ours, theirs, draws)


def _sets(task: Task, labels: Array, model: Array, champion: Array) -> Comparison:
    ours, theirs = (multilabel_metrics(labels, side)[task.metric] for side in (model, champion))
    draws = [
        f1_of_sets(rows, truth, one, task.metric) - f1_of_sets(rows, truth, other, task.metric)
        for rows, (truth, one, other) in resampled_sets(labels, model, champion)
    ]
    return _bootstrapped(task.metric, len(labels), ours, theirs, np.concatenate(draws))


def _bootstrapped(metric: str, rows: int, ours: float, theirs: float, draws: Array) -> Comparison:
    """Use the differences of the metric in resamples, [draws].

    p is twice the smaller share of draws on a side of 0 (Davison & Hinkley 1997, chapter 4).
    """
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    side = min((draws <= 0).sum(), (draws >= 0).sum())
    p = min(2 * (int(side) + 1) / (len(draws) + 1), 1.0)
    return Comparison(metric, rows, ours, theirs, ours - theirs, (float(low), float(high)), p)
