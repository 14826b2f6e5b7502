"""A study's figures as people read them: the same words in the page, in Markdown and in plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tasks.stages.study.table import Row

DASH = "—"
REMARK = (
    "Rows a second, memory and training time are those of the machine that trained, beside whatever else it did: "
    "compare them within one study on a quiet machine only. An arm whose training another run had made before shows "
    "the figures of that training."
)


class Cell(NamedTuple):
    """A figure, and below it how it compares with the reference."""

    value: str
    relative: str = ""


class Column(NamedTuple):
    """A column of the table: its title, and what stands in it for a row."""

    title: str
    cell: Callable[[Row], Cell]


def columns(summary: Mapping[str, Any]) -> list[Column]:
    """The table's columns after the configuration."""
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
        Column("wire a step", cost("wire", in_bytes)),
        Column("training", cost("seconds", "{:,.0f} s".format)),
    ]


class Beside(NamedTuple):
    """A row of the paper's table 5: its figures, and ours; throughput and memory relative to the first."""

    configuration: str
    paper: tuple[str, str, str]
    ours: tuple[str, str, str]


def table_5(summary: Mapping[str, Any]) -> list[Beside]:
    """The paper's figures and ours, row by row."""
    rows = []
    for row in summary["table_5"]:
        claim, ours = row["paper"], row["ours"]
        paper = (f"{claim['accuracy']:.1f} %", percent(claim["throughput"] / 100), percent(-claim["memory"] / 100))
        rows.append(Beside(row["configuration"], paper, _ours(ours) if ours else (DASH, DASH, DASH)))
    return rows


def _ours(row: Row) -> tuple[str, str, str]:
    relative = row["relative"]
    score = or_dash(row["metric"], lambda value: f"{100 * value:.1f} %")
    return score, percent(relative["rows_per_second"]), percent(relative["memory"])


def or_dash(value: float | None, write: Callable[[float], str]) -> str:
    """The value in words, a dash when it was not measured."""
    return DASH if value is None else write(value)


def percent(share: float | None) -> str:
    """A change: 0.123 is +12.3 %."""
    return or_dash(share, lambda value: f"{100 * value + 0.0:+.1f} %")


def _interval(row: Row) -> Cell:
    if row["interval"] is None:
        return Cell(DASH)
    low, high = row["interval"]
    return Cell(f"{low:.4f} to {high:.4f}", f"over {row['interval_over']}")


def in_bytes(count: float) -> str:
    """Bytes with three digits or so, in units of a thousand."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
