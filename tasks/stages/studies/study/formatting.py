"""Format the figures of a study, in the same way for the page and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tasks.reporting.figures import DASH, in_bytes, or_dash
from tasks.stages.studies.study.table import Row

REMARK = (
    "Throughput, memory and training time depend on the machine and on its other load, so compare them only within one "
    "study on an otherwise idle machine. An arm that reuses the training of an earlier run shows the figures of that "
    "training."
)


class Cell(NamedTuple):
    """A figure, and how it compares with the reference row."""

    value: str
    relative: str = ""


class Column(NamedTuple):
    """A column of the table: its title, and the function that returns its cell for a row."""

    title: str
    cell: Callable[[Row], Cell]


def columns(summary: Mapping[str, Any]) -> list[Column]:
    """Return the columns of the table, without the first one, the configuration.

    Args:
        summary: The content of study.json.
    """
    reference = summary["reference"]

    def cost(name: str, write: Callable[[float], str]) -> Callable[[Row], Cell]:
        def cell(row: Row) -> Cell:
            change = "" if row["configuration"] == reference else percent(row["relative"][name])
            return Cell(or_dash(row[name], write), change)

        return cell

    def metric(row: Row) -> Cell:
        change = "" if row["configuration"] == reference else or_dash(row["relative"]["metric"], "{:+.4f}".format)
        return Cell(or_dash(row["metric"], "{:.4f}".format), change)

    return [
        Column("seeds", lambda row: Cell(", ".join(map(str, row["seeds"])))),
        Column(summary["metric"], metric),
        Column("95 % interval", _interval),
        Column("rows/s", cost("rows_per_second", "{:,.0f}".format)),
        Column("memory", cost("memory", in_bytes)),
        Column("wire per step", cost("wire", in_bytes)),
        Column("training", cost("seconds", "{:,.0f} s".format)),
    ]


class PaperComparison(NamedTuple):
    """A row of the paper's table 5, with the paper's figures and ours: score, throughput and memory.

    Throughput and memory are relative to the first row of the paper, or to our reference row.
    """

    configuration: str
    paper: tuple[str, str, str]
    ours: tuple[str, str, str]


def table_5(summary: Mapping[str, Any]) -> list[PaperComparison]:
    """Return the paper's figures and ours, row by row.

    Args:
        summary: The content of study.json.
    """
    rows = []
    for row in summary["table_5"]:
        claim, ours = row["paper"], row["ours"]
        paper = (f"{claim['accuracy']:.1f} %", percent(claim["throughput"] / 100), percent(-claim["memory"] / 100))
        rows.append(PaperComparison(row["configuration"], paper, _ours(ours) if ours else (DASH, DASH, DASH)))
    return rows


def _ours(row: Row) -> tuple[str, str, str]:
    relative = row["relative"]
    score = or_dash(row["metric"], lambda value: f"{100 * value:.1f} %")
    return score, percent(relative["rows_per_second"]), percent(relative["memory"])


def percent(share: float | None) -> str:
    """Format a relative change: 0.123 becomes "+12.3 %"."""
    return or_dash(share, lambda value: f"{100 * value + 0.0:+.1f} %")


def _interval(row: Row) -> Cell:
    if row["interval"] is None:
        return Cell(DASH)
    low, high = row["interval"]
    return Cell(f"{low:.4f} to {high:.4f}", f"over {row['interval_over']}")
