"""The report of a study, as a page and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from tasks.reporting import page
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
    return ["seeds", summary["metric"], "95 % interval", *(title for title, _ in _COSTS.values())]


def _cells(row: Row, summary: Mapping[str, Any]) -> list[Cell]:
    changes = {name: _percent(share) for name, share in row["relative"].items()}
    changes["metric"] = or_dash(row["relative"]["metric"], "{:+.4f}".format)
    if row["configuration"] == summary["reference"]:
        changes = dict.fromkeys(changes, "")
    interval = Cell(DASH)
    if row["interval"] is not None:
        low, high = row["interval"]
        interval = Cell(f"{low:.4f} to {high:.4f}", f"over {row['interval_over']}")
    metric = Cell(or_dash(row["metric"], "{:.4f}".format), changes["metric"])
    costs = [Cell(or_dash(row[name], write), changes[name]) for name, (_, write) in _COSTS.items()]
    return [Cell(", ".join(map(str, row["seeds"]))), metric, interval, *costs]


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
