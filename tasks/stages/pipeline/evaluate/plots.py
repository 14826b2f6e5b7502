"""The plots of the evaluation report, among them the training curves out of the metrics.jsonl of train."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from tasks.reporting.drawing import BLUE, GRAY, INK, RED, new_axes, style_axes
from tasks.scoring.predictions import Array
from tasks.stages.pipeline.evaluate.summary import OperatingPoints

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
        label = f"{point['about']} ({point['threshold']:.3f})"
        style = {"color": RED, "markersize": 6, "linestyle": "", "label": label}
        left.plot(point["recall"], point["precision"], marker, **style)
        right.plot(point["false_positive_rate"], point["recall"], marker, **style)
    left.legend(frameon=False, fontsize=8.5, loc="lower left")
    style_axes(left, f"Precision and recall (average precision {found.average_precision:.4f})", "recall", "precision")
    style_axes(right, f"ROC (area {found.roc_auc:.4f})", "false positive rate", "true positive rate")
    return figure


def reliability(calibration: Mapping[str, Any], counted: str) -> Figure:
    """Draw the accuracy and size of each confidence bin, before and after; the diagonal is perfect calibration."""
    figure = Figure(figsize=(9.4, 4.2), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=[3, 1])
    sides = {"Before": calibration["before"], "After": calibration}
    for (name, one), (upper, lower) in zip(sides.items(), axes.T, strict=True):
        bins = pd.DataFrame(one["bins"])
        middles, widths = (bins["low"] + bins["high"]) / 2, bins["high"] - bins["low"]
        upper.bar(middles, bins["accuracy"], widths, color=BLUE, alpha=0.75, edgecolor="white")
        upper.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1, zorder=3)
        upper.plot(bins["confidence"], bins["accuracy"], ".", color=RED)
        lower.bar(middles, bins["rows"], widths, color=GRAY, edgecolor="white")
        style_axes(upper, f"{name} (ECE {one['ece']:.4f})", "", "accuracy" if name == "Before" else "")
        style_axes(lower, "", "confidence", counted if name == "Before" else "")
    lowest = min(one["bins"][0]["low"] for one in sides.values())
    axes[0, 0].set(xlim=(lowest, 1), ylim=(0, 1.02))
    return figure


def risk(evidence: Mapping[str, Any], certified: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the error among the answered rows over their share, from high confidence to low, and what is certified."""
    figure, axes = new_axes("Risk and coverage", "answered", "error among the answers", size=(5.2, 4.2))
    answered, wrong = np.array(evidence["answered"]), np.array(evidence["wrong"])
    some = answered > 0
    axes.plot(answered[some] / evidence["rows"], wrong[some] / answered[some], color=BLUE, linewidth=1.5)
    for row in certified:
        if row["confidence"] is not None:
            axes.plot(row["answered"], row["error"], "o", color=RED, markersize=5)
            axes.annotate(f"max_risk {row['max_risk']:g}", (row["answered"], row["error"]), fontsize=8.5, ha="right")
    axes.set_xlim(0, 1.02)
    axes.set_ylim(bottom=0)
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


def read_curve(file: Path, name: str) -> pd.Series[float]:
    """Return the finite values of a metrics.jsonl with this name, such as "loss" or "dev_loss", by step."""
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    found = {line["step"]: line[name] for line in lines if line.get(name) is not None}  # null: it was not finite
    return pd.Series(found, dtype=float)


def training(train: pd.Series[float], dev: pd.Series[float], metrics: pd.Series[float], metric: str) -> Figure:
    """Draw the training loss and the dev loss over the steps and, next to them, the dev metric."""
    figure = Figure(figsize=(9.4, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    if len(train) > MANY:
        left.plot(train, color=BLUE, linewidth=0.8, alpha=0.35)
        left.plot(train.ewm(alpha=0.1).mean(), color=BLUE, linewidth=1.6, label="train (smoothed)")
    else:
        left.plot(train, color=BLUE, linewidth=1.4, label="train")
    left.plot(dev, "o-", color=RED, markersize=4, linewidth=1.4, label="dev")
    right.plot(metrics, "o-", color=RED, markersize=4, linewidth=1.4)
    left.set_ylim(bottom=0)
    if len(metrics):
        right.set_ylim(*_limits(metrics.min(), metrics.max()))
    for axes in (left, right):
        axes.set_xlim(left=0)
    style_axes(left, "Loss", "step", "loss")
    left.legend(frameon=False, fontsize=8.5)
    style_axes(right, f"Dev {metric}", "step", metric)
    return figure


def _limits(low: float, high: float) -> tuple[float, float]:
    """Return the limits of an axis for a metric, at least SPAN apart: a smaller change would look like a large one."""
    margin = max(SPAN - (high - low), 0.1 * (high - low)) / 2
    top = min(high + margin, max(1.0, high))
    return min(low - margin, top - SPAN), top
