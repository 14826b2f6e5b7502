"""The two plots of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from tasks.reporting.drawing import BLUE, GRAY, INK, new_axes
from tasks.stages.studies.study.table import Row


def intervals(summary: Mapping[str, Any]) -> Figure | None:
    """Draw the metric of each configuration as a dot with its interval; None if no configuration has a metric."""
    rows = [row for row in summary["rows"] if row["metric"] is not None]
    if not rows:
        return None
    figure, axes = new_axes(f"{summary['metric']} with 95 % intervals", "", "", (7.4, 1.0 + 0.32 * len(rows)))
    for place, row in enumerate(rows):
        color = _color(row, summary)
        axes.plot(row["metric"], place, "o", color=color, markersize=7)
        if row["interval"]:
            axes.plot(row["interval"], [place, place], color=color, linewidth=1.6, marker="|")
        if row["configuration"] == summary["reference"]:
            axes.axvline(row["metric"], color=GRAY, linestyle="--", linewidth=1)
    axes.margins(0.06, 0.12)
    axes.set_yticks(range(len(rows)), [row["configuration"] for row in rows], parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()  # puts the first configuration on top
    return figure


def tradeoff(summary: Mapping[str, Any]) -> Figure | None:
    """Draw the metric over the throughput, one numbered point per configuration; None if no configuration has both."""
    rows = [row for row in summary["rows"] if None not in (row["metric"], row["rows_per_second"])]
    if not rows:
        return None
    figure, axes = new_axes(
        "Throughput and the metric", "training rows per second", summary["metric"], (7.4, max(4.4, 0.24 * len(rows)))
    )
    for number, row in enumerate(rows, 1):
        place = (row["rows_per_second"], row["metric"])
        axes.plot(*place, "o", color=_color(row, summary), markersize=13, alpha=0.85, linewidth=0)
        axes.annotate(str(number), place, ha="center", va="center", fontsize=8, color="white")
        height = 1 - number / max(18, len(rows) + 1)
        axes.annotate(f"{number}", (1.04, height), xycoords="axes fraction", ha="right", fontsize=8.5, color=GRAY)
        axes.text(
            1.06, height, row["configuration"], transform=axes.transAxes, fontsize=8.5, color=INK, parse_math=False
        )
    axes.margins(0.1)
    return figure


def _color(row: Row, summary: Mapping[str, Any]) -> str:
    return GRAY if row["configuration"] == summary["reference"] else BLUE
