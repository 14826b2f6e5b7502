"""The report's plots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from tasks.drawing import BLUE, GREY, INK, RED, dress, new_axes
from tasks.evaluate.calibration import Calibration
from tasks.evaluate.curves import Curves
from tasks.metrics import Array

#: Beyond this many points a smoothed loss is drawn over the raw one, and a scatter gets fainter.
MANY = 60


def confusion(matrix: Sequence[Sequence[int]], names: Sequence[str]) -> Figure:
    """Counts by label (rows) and prediction (columns), shaded by share of the label's rows."""
    counts = np.asarray(matrix)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = 2.6 + 0.7 * len(names)
    figure, axes = new_axes("Confusion matrix", "predicted", "label", size=(side + 0.6, side))
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for row, column in np.ndindex(counts.shape):
        shade = "white" if shares[row, column] > 0.55 else INK
        text = f"{counts[row, column]:,}\n{shares[row, column]:.1%}"
        axes.text(column, row, text, ha="center", va="center", color=shade, fontsize=9)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names, rotation=90, va="center")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return figure


def reliability(calibration: Calibration) -> Figure:
    """Accuracy of each confidence bin against the diagonal of a calibrated model, its rows below."""
    figure = Figure(figsize=(5.2, 4.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    bins = calibration.bins
    middles, widths = [(one.low + one.high) / 2 for one in bins], [one.high - one.low for one in bins]
    upper.bar(middles, [one.accuracy for one in bins], widths, color=BLUE, alpha=0.75, edgecolor="white")
    upper.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1, zorder=3)
    upper.plot([one.confidence for one in bins], [one.accuracy for one in bins], ".", color=RED)
    upper.set_xlim(min(one.low for one in bins), 1)
    upper.set_ylim(0, 1.02)
    lower.bar(middles, [one.rows for one in bins], widths, color=GREY, edgecolor="white")
    dress(upper, f"Reliability (ECE {calibration.ece:.4f})", "", "accuracy")
    dress(lower, "", "confidence", "rows")
    return figure


def scatter(labels: Array, scores: Array) -> Figure:
    """True scores against predicted ones, with the line where they are equal."""
    figure, axes = new_axes("Scores", "true score", "predicted score", size=(4.6, 4.4))
    axes.scatter(labels, scores, s=9, color=BLUE, alpha=0.35 if len(labels) > MANY else 0.8, linewidths=0)
    ends = [min(labels.min(), scores.min()), max(labels.max(), scores.max())]
    axes.plot(ends, ends, color=GREY, linestyle="--", linewidth=1)
    return figure


def errors(labels: Array, scores: Array) -> Figure:
    """Histogram of predicted minus true score, with its mean."""
    error = scores - labels
    figure, axes = new_axes(f"Errors (mean {error.mean():+.3f})", "predicted - true", "rows", size=(4.6, 4.4))
    axes.hist(error, bins=min(40, max(5, len(error) // 10)), color=BLUE, alpha=0.85, edgecolor="white")
    axes.axvline(0, color=GREY, linestyle="--", linewidth=1)
    axes.axvline(error.mean(), color=RED, linewidth=1.2)
    return figure


def training(curves: Curves, metric: str) -> Figure:
    """Training loss over the steps, and the dev metric at each evaluation."""
    figure = Figure(figsize=(9.4, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    many = len(curves.losses) > MANY
    left.plot(curves.steps, curves.losses, color=BLUE, linewidth=0.8 if many else 1.4, alpha=0.35 if many else 1)
    if many:
        left.plot(curves.steps, _smooth(curves.losses), color=BLUE, linewidth=1.6)
    right.plot(curves.dev_steps, curves.dev_metrics, "o-", color=RED, markersize=4, linewidth=1.4)
    left.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlim(left=0)
    dress(left, "Training loss", "step", "loss")
    dress(right, f"Dev {metric}", "step", metric)
    return figure


def _smooth(values: Sequence[float]) -> list[float]:
    """Exponential moving average, corrected for its start as Adam's moments are."""
    smoothed, mean = [], 0.0
    for step, value in enumerate(values, 1):
        mean = 0.9 * mean + 0.1 * value
        smoothed.append(mean / (1 - 0.9**step))
    return smoothed
