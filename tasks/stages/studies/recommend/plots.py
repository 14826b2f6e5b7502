"""The plots of a search: its trials over time and over rungs, the importance of the fields, parallel coordinates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tasks.reporting.drawing import BLUE, GRAY, INK, RED, new_axes, style_axes

#: The colors of trials by the rung that they have reached, the last one darkest.
_SHADES = ("#b9cfdd", "#76a3c0", BLUE)
_LONGEST = 18  # characters of a choice that an axis shows
Trial = Mapping[str, Any]


def progress(summary: Mapping[str, Any]) -> Figure:
    """Draw the metric of the trials in their order, with the best so far, and next to it over the rungs."""
    figure = Figure(figsize=(9.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    trials, shares, metric = measured(summary), summary["shares"], summary["metric"]
    for rung, share in enumerate(shares, 1):
        reached = [trial for trial in trials if len(trial["rungs"]) == rung]
        label = f"{100 * share:.0f} % of the steps" if share < 1 else "whole training"
        points = [trial["number"] for trial in reached], [trial["metric"] for trial in reached]
        left.plot(*points, "o", color=_shade(rung, len(shares)), markersize=5, label=label)
    best = list(accumulate((trial["metric"] for trial in trials), max))
    left.step([trial["number"] for trial in trials], best, where="post", color=GRAY, linewidth=1.2, label="best so far")
    left.legend(frameon=False, fontsize=8.5)
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    for trial in sorted(trials, key=lambda trial: _emphasis(trial, summary)):
        values = [rung["metric"] for rung in trial["rungs"]]
        style = _style(trial, summary)
        right.plot(shares[: len(values)], values, marker="o", markersize=3, **style)
    right.legend(frameon=False, fontsize=8.5)
    right.set_xticks(shares, [f"{100 * share:.0f} %" for share in shares])
    style_axes(left, f"Dev {metric} by trial", "trial", metric)
    style_axes(right, f"Dev {metric} by rung", "share of the steps", "")
    return figure


def importance(summary: Mapping[str, Any]) -> Figure | None:
    """Draw the share of the variance of the metric that each field explains; None if it is not known."""
    found = summary["importance"]
    if not found:
        return None
    figure, axes = new_axes("Importance of the fields", "share of the variance", "", (7.4, 0.9 + 0.32 * len(found)))
    axes.barh(range(len(found)), list(found.values()), color=BLUE, height=0.6)
    for place, share in enumerate(found.values()):
        axes.annotate(f" {100 * share:.1f} %", (share, place), va="center", fontsize=8.5, color=INK)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_xlim(0, 1.12 * max(found.values()))
    axes.invert_yaxis()  # puts the most important one on top
    return figure


def coordinates(summary: Mapping[str, Any]) -> Figure | None:
    """Draw each trial as a line over the fields and the metric; None for fewer than two trials."""
    trials, space = measured(summary), summary["space"]
    if len(trials) < 2:
        return None
    columns = [*((name, [trial["values"][name] for trial in trials], entry) for name, entry in space.items())]
    columns.append((summary["metric"], [trial["metric"] for trial in trials], {}))
    figure = Figure(figsize=(9.4, 4.0), layout="constrained")
    axes = figure.subplots()
    heights = [_heights(values, entry) for _, values, entry in columns]
    low, high = min(columns[-1][1]), max(columns[-1][1])
    for at, trial in sorted(enumerate(trials), key=lambda pair: _emphasis(pair[1], summary)):
        share = (trial["metric"] - low) / (high - low) if high > low else 1.0
        style = _style(trial, summary) | {"alpha": 1.0 if _emphasis(trial, summary) else 0.12 + 0.6 * share}
        axes.plot(range(len(columns)), [column[at] for column in heights], **style)
    for place, (_, values, entry) in enumerate(columns):
        _axis(axes, place, values, entry, last=place == len(columns) - 1)
    names = [name.replace(".", ".\n") for name, _, _ in columns]
    axes.set_xticks(range(len(columns)), names, parse_math=False)
    axes.set_xlim(-0.35, len(columns) - 0.55)
    axes.set_yticks([])
    axes.legend(frameon=False, fontsize=8.5, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    style_axes(axes, "Settings and results: the stronger, the better", "", "")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    return figure


def measured(summary: Mapping[str, Any]) -> list[Trial]:
    """Return the trials that have a metric, by number."""
    return [trial for trial in summary["trials"] if trial["metric"] is not None]


def _style(trial: Trial, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the line of a trial is drawn; the best one and the default have labels."""
    if trial["number"] == summary["best"]:
        return {"color": RED, "linewidth": 2.0, "label": f"trial {trial['number']}, the best"}
    if trial["default"]:
        return {"color": INK, "linewidth": 1.6, "linestyle": "--", "label": "default"}
    return {"color": BLUE, "linewidth": 1.0, "alpha": 0.5}


def _emphasis(trial: Trial, summary: Mapping[str, Any]) -> int:
    """Return how important a trial is: the most important one is drawn last."""
    return 2 if trial["number"] == summary["best"] else int(trial["default"])


def _shade(rung: int, rungs: int) -> str:
    return _SHADES[max(0, len(_SHADES) - 1 - rungs + rung)]


def _heights(values: Sequence[Any], entry: Mapping[str, Any]) -> list[float]:
    """Return where an axis of the height 1 has these values: choices at equal distances, numbers between their ends."""
    if "choices" in entry:
        choices = entry["choices"]
        return [choices.index(value) / max(len(choices) - 1, 1) for value in values]
    numbers = [math.log(value) if entry.get("log") else float(value) for value in values]
    low, high = min(numbers), max(numbers)
    return [(value - low) / (high - low) if high > low else 0.5 for value in numbers]


def _axis(axes: Axes, place: int, values: Sequence[Any], entry: Mapping[str, Any], last: bool) -> None:
    axes.axvline(place, color=GRAY, linewidth=1)
    shown = entry["choices"] if "choices" in entry else sorted({min(values), max(values)})
    for value, height in zip(shown, _heights(shown, entry), strict=True):
        side: dict[str, Any] = {"ha": "left", "xytext": (5, 0)} if last else {"ha": "right", "xytext": (-5, 0)}
        axes.annotate(
            written(value)[:_LONGEST], (place, height), textcoords="offset points", va="center", fontsize=8, color=INK,
            parse_math=False, bbox={"boxstyle": "square,pad=0.1", "color": "white", "alpha": 0.8}, **side,
        )  # fmt: skip


def written(value: Any) -> str:
    """Return the value of a field as text."""
    if isinstance(value, float):
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{value:.4g}" if int(exponent) > -4 else f"{float(mantissa):g}e{int(exponent)}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
