"""The report of a study, as a page and as Markdown, and its two plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from tasks.reporting import page
from tasks.reporting.drawing import BLUE, GRAY, INK, new_axes
from tasks.reporting.figures import DASH, in_bytes, or_dash, plain, table
from tasks.stages.studies.study.table import Row

TEMPLATE = Path(__file__).with_name("report.html.j2")
REMARK = (
    "Throughput, memory and training time depend on the machine and on its other load, so compare them only within one "
    "study on an otherwise idle machine. An arm that reuses the training of an earlier run shows the figures of that "
    "training."
)
#: The costs in the order of their columns: title and format.
_COSTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "steps": ("steps", "{:,.0f}".format),
    "rows_per_second": ("rows/s", "{:,.0f}".format),
    "memory": ("memory", in_bytes),
    "wire": ("wire per step", in_bytes),
    "seconds": ("training", "{:,.0f} s".format),
}


class Cell(NamedTuple):
    """A figure, and how it compares with the reference row."""

    value: str
    relative: str = ""


def html(summary: Mapping[str, Any], plots: Mapping[str, Path]) -> str:
    """Return the page for the content of study.json, with the plots, which are PNG files by their titles, in it."""
    images = [{"title": title, "source": page.inline(file)} for title, file in plots.items()]
    best = max((row for row in summary["rows"] if row["metric"] is not None), key=itemgetter("metric"), default=None)
    return page.render(
        TEMPLATE, summary=summary, best=best, plots=images, titles=_titles(summary),
        rows=[(row, _cells(row, summary)) for row in summary["rows"]], table_5=_table_5(summary), remark=REMARK,
    )  # fmt: skip


def markdown(summary: Mapping[str, Any]) -> str:
    """Return the content of study.json as Markdown."""
    lines = [f"# Study {plain(summary['study'])}", ""]
    lines += [f"Task {plain(summary['task'])}; relative figures are to `{plain(summary['reference'])}`. {REMARK}", ""]
    lines += table(
        ["configuration", *_titles(summary)],
        ([row["configuration"], *map(_words, _cells(row, summary))] for row in summary["rows"]),
    )
    if summary["table_5"]:
        titles = [f"{whose}: {title}" for whose in ("paper", "ours") for title in ("score", "throughput", "memory")]
        lines += ["", "## The paper's table 5", "", *table(["configuration", *titles], _table_5(summary))]
    if summary["warnings"]:
        lines += ["", "## Left out", "", *(f"* {plain(warning)}" for warning in summary["warnings"])]
    return "\n".join([*lines, ""])


def _titles(summary: Mapping[str, Any]) -> list[str]:
    titles = ["seeds", summary["metric"], "95 % interval", "difference", *(title for title, _ in _COSTS.values())]
    return [*titles, *(["papers"] if _has_claims(summary) else [])]


def _has_claims(summary: Mapping[str, Any]) -> bool:
    return any(row["papers"] for row in summary["rows"])


def _cells(row: Row, summary: Mapping[str, Any]) -> list[Cell]:
    changes = {name: _percent(share) for name, share in row["relative"].items()}
    if is_reference := row["configuration"] == summary["reference"]:
        changes = dict.fromkeys(changes, "")
    interval = Cell(DASH)
    if row["interval"] is not None:
        low, high = row["interval"]
        interval = Cell(f"{low:.4f} to {high:.4f}", f"over {row['interval_over']}")
    each = ", ".join(or_dash(value, "{:.4f}".format) for value in row["values"])
    metric = Cell(or_dash(row["metric"], "{:.4f}".format), each if len(row["values"]) > 1 else "")
    difference = Cell("") if is_reference else _difference(row)
    costs = [Cell(or_dash(row[name], write), changes[name]) for name, (_, write) in _COSTS.items()]
    claims = [Cell(row["papers"])] if _has_claims(summary) else []
    return [Cell(", ".join(map(str, row["seeds"]))), metric, interval, difference, *costs, *claims]


def _difference(row: Row) -> Cell:
    found, value = row["difference"], or_dash(row["relative"]["metric"], "{:+.4f}".format)
    if not found or found["interval"] is None:
        return Cell(value)
    low, high = found["interval"]
    return Cell(value, f"{low:+.4f} to {high:+.4f}, p = {found['p']:.3f}")


def _table_5(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return each configuration with score, throughput and memory, relative to the first row: the paper's, and ours."""
    rows = []
    for row in summary["table_5"]:
        claim, ours = row["paper"], row["ours"]
        cells = [f"{claim['accuracy']:.1f} %", _percent(claim["throughput"] / 100), _percent(-claim["memory"] / 100)]
        if ours:
            relative = ours["relative"]
            cells.append(or_dash(ours["metric"], lambda value: f"{100 * value:.1f} %"))
            cells += [_percent(relative["rows_per_second"]), _percent(relative["memory"])]
        else:
            cells += [DASH, DASH, DASH]
        rows.append([row["configuration"], *cells])
    return rows


def _percent(share: float | None) -> str:
    return or_dash(share, lambda value: f"{100 * value + 0.0:+.1f} %")


def _words(cell: Cell) -> str:
    return f"{cell.value} ({cell.relative})" if cell.relative else cell.value


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
