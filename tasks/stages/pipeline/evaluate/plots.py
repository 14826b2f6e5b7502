"""The plots of the evaluation report, among them the training curves out of the metrics.jsonl of train."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from tasks.reporting.drawing import BLUE, GRAY, INK, RED, new_axes, style_axes
from tasks.scoring.metrics import Array
from tasks.stages.pipeline.evaluate.probabilities import Calibration, OperatingPoints

#: With more points than this, a smoothed loss is drawn over the raw one, and the points of a scatter plot are fainter.
MANY = 60
#: The smallest part of a metric's range that an axis shows.
SPAN = 0.2


def confusion(matrix: Sequence[Sequence[int]]) -> Figure:
    """Draw the shares of each label's rows that got each prediction, for more classes than a table can show."""
    counts = np.asarray(matrix)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    figure, axes = new_axes("Confusion matrix, by the classes' numbers", "predicted", "label", size=(8.2, 7.4))
    image = axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, vmin=0, vmax=1))  # makes small shares visible
    every = range(0, len(counts), max(len(counts) // 20, 1))  # ids: matplotlib may lack the font for their names
    axes.set_xticks(every, [str(one) for one in every])
    axes.set_yticks(every, [str(one) for one in every])
    bar = figure.colorbar(image, ax=axes, shrink=0.8, format=PercentFormatter(1, decimals=0))
    bar.set_label("share of the label's rows", color=INK, fontsize=9)
    bar.ax.tick_params(colors=INK, labelsize=8.5)
    return figure


def operating(found: OperatingPoints) -> Figure:
    """Draw the precision-recall curve and the ROC curve, with the operating points on both."""
    figure = Figure(figsize=(9.4, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, curve in zip((left, right), found.curves, strict=True):
        axes.plot(*curve, color=BLUE, linewidth=1.5)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
    left.axhline(found.share, color=GRAY, linestyle="--", linewidth=1)
    right.plot([0, 1], [0, 1], color=GRAY, linestyle="--", linewidth=1)
    for point, marker in zip(found.points, "o^", strict=True):
        style = {"color": RED, "markersize": 6, "linestyle": "", "label": f"{point.about} ({point.threshold:.3f})"}
        left.plot(point.recall, point.precision, marker, **style)
        right.plot(point.false_positive_rate, point.recall, marker, **style)
    left.legend(frameon=False, fontsize=8.5, loc="lower left")
    style_axes(left, f"Precision and recall (average precision {found.average_precision:.4f})", "recall", "precision")
    style_axes(right, f"ROC (area {found.roc_auc:.4f})", "false positive rate", "true positive rate")
    return figure


def reliability(calibration: Calibration) -> Figure:
    """Draw the accuracy and the rows of each confidence bin; the diagonal is a perfectly calibrated model."""
    figure = Figure(figsize=(5.2, 4.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    bins = calibration.bins
    middles, widths = [(one.low + one.high) / 2 for one in bins], [one.high - one.low for one in bins]
    upper.bar(middles, [one.accuracy for one in bins], widths, color=BLUE, alpha=0.75, edgecolor="white")
    upper.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1, zorder=3)
    upper.plot([one.confidence for one in bins], [one.accuracy for one in bins], ".", color=RED)
    upper.set_xlim(min(one.low for one in bins), 1)
    upper.set_ylim(0, 1.02)
    lower.bar(middles, [one.rows for one in bins], widths, color=GRAY, edgecolor="white")
    style_axes(upper, f"Reliability (ECE {calibration.ece:.4f})", "", "accuracy")
    style_axes(lower, "", "confidence", "rows")
    return figure


def scatter(labels: Array, scores: Array) -> Figure:
    """Draw predicted scores over true scores, with the line on which they are equal."""
    figure, axes = new_axes("Scores", "true score", "predicted score", size=(4.6, 4.4))
    axes.scatter(labels, scores, s=9, color=BLUE, alpha=0.35 if len(labels) > MANY else 0.8, linewidths=0)
    ends = [min(labels.min(), scores.min()), max(labels.max(), scores.max())]
    axes.plot(ends, ends, color=GRAY, linestyle="--", linewidth=1)
    return figure


def errors(labels: Array, scores: Array) -> Figure:
    """Draw a histogram of the errors, predicted minus true score, with their mean."""
    error = scores - labels
    figure, axes = new_axes(f"Errors (mean {error.mean():+.3f})", "predicted - true", "rows", size=(4.6, 4.4))
    axes.hist(error, bins=min(40, max(5, len(error) // 10)), color=BLUE, alpha=0.85, edgecolor="white")
    axes.axvline(0, color=GRAY, linestyle="--", linewidth=1)
    axes.axvline(error.mean(), color=RED, linewidth=1.2)
    return figure


@dataclass(frozen=True)
class Curves:
    """The training loss, and the loss and the metric of the dev split, each with the steps of its values."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    dev_steps: list[int] = field(default_factory=list)
    dev_metrics: list[float] = field(default_factory=list)
    dev_loss_steps: list[int] = field(default_factory=list)
    dev_losses: list[float] = field(default_factory=list)


def read_curves(file: Path, metric: str) -> Curves:
    """Read the curves from a metrics.jsonl, whose lines have either the training loss or results on the dev split."""
    curves = Curves()
    for text in file.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        for value, steps, values in (
            (line.get("loss"), curves.steps, curves.losses),
            (line.get(metric), curves.dev_steps, curves.dev_metrics),
            (line.get("dev_loss"), curves.dev_loss_steps, curves.dev_losses),
        ):
            if value is not None:  # null stands for a value that was not finite
                steps.append(line["step"])
                values.append(value)
    return curves


def training(curves: Curves, metric: str) -> Figure:
    """Draw the training loss and the dev loss over the steps and, next to them, the dev metric."""
    figure = Figure(figsize=(9.4, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    many = len(curves.losses) > MANY
    label = None if many else "train"
    left.plot(
        curves.steps, curves.losses, color=BLUE, linewidth=0.8 if many else 1.4, alpha=0.35 if many else 1, label=label
    )
    if many:
        left.plot(curves.steps, _smooth(curves.losses), color=BLUE, linewidth=1.6, label="train (smoothed)")
    left.plot(curves.dev_loss_steps, curves.dev_losses, "o-", color=RED, markersize=4, linewidth=1.4, label="dev")
    right.plot(curves.dev_steps, curves.dev_metrics, "o-", color=RED, markersize=4, linewidth=1.4)
    left.set_ylim(bottom=0)
    if curves.dev_metrics:
        right.set_ylim(*_limits(curves.dev_metrics))
    for axes in (left, right):
        axes.set_xlim(left=0)
    style_axes(left, "Loss", "step", "loss")
    left.legend(frameon=False, fontsize=8.5)
    style_axes(right, f"Dev {metric}", "step", metric)
    return figure


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of an axis for a metric, at least SPAN apart: a smaller change would look like a large one."""
    low, high = min(values), max(values)
    margin = max(SPAN - (high - low), 0.1 * (high - low)) / 2
    top = min(high + margin, max(1.0, high))
    return min(low - margin, top - SPAN), top


def _smooth(values: Sequence[float]) -> list[float]:
    """Return the exponential moving average with Adam's bias correction."""
    smoothed, mean = [], 0.0
    for step, value in enumerate(values, 1):
        mean = 0.9 * mean + 0.1 * value
        smoothed.append(mean / (1 - 0.9**step))
    return smoothed
