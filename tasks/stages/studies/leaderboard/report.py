"""The leaderboard as a page and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tasks.reporting import page
from tasks.reporting.figures import DASH, in_bytes, or_dash, plain, table
from tasks.stages.studies.leaderboard.table import Row

TEMPLATE = Path(__file__).with_name("leaderboard.html.j2")
REMARK = (
    "Figures are means over the seeds. Where seeds differ in the metric, the interval is Student's t interval of the "
    "mean; otherwise it covers only the dev rows. p is that of a paired comparison with the best model on the dev "
    "rows, with the first seed that both have (McNemar's exact test of accuracy, or a bootstrap for scores). Times, "
    "speeds, and memory depend on the machine and its other load. The time of training is without the start of "
    "processes, evaluations, and checkpoints, and memory is without Spark's. A dash stands for what was not run."
)
#: The columns after the name: title, and what a row has in it.
_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("seeds", lambda row: ", ".join(map(str, row["seeds"]))),
    ("value", lambda row: or_dash(row["metric"], "{:.4f}".format)),
    ("95 % interval", lambda row: _interval(row)),
    ("p", lambda row: or_dash(row["p"], "{:.2g}".format)),
    ("training", lambda row: or_dash(row["seconds"], "{:,.0f} s".format)),
    ("rows/s trained", lambda row: or_dash(row["training_rows_per_second"], "{:,.0f}".format)),
    ("rows/s labeled", lambda row: or_dash(row["labeling_rows_per_second"], "{:,.0f}".format)),
    ("size", lambda row: or_dash(row["size"], in_bytes)),
    ("memory", lambda row: or_dash(row["memory"], in_bytes)),
)
TITLES = ("model", *(title for title, _ in _COLUMNS))
PAPER_TITLES = ("table", "the papers' model", "claimed", "ours", "our model")


def html(summary: Mapping[str, Any]) -> str:
    """Return the page for the content of leaderboard.json."""
    tasks = [{**task, "cells": _cells(task), "claims": _claims(task)} for task in summary["tasks"]]
    return page.render(TEMPLATE, summary=summary, tasks=tasks, titles=TITLES, paper_titles=PAPER_TITLES, remark=REMARK)


def markdown(summary: Mapping[str, Any]) -> str:
    """Return the content of leaderboard.json as Markdown."""
    lines = ["# Leaderboard", "", REMARK]
    for task in summary["tasks"]:
        lines += ["", f"## {plain(task['task'])}: {plain(task['metric'])}", "", *table(TITLES, _cells(task))]
        if task["papers"]:
            lines += ["", *table(PAPER_TITLES, _claims(task))]
    lines += ["", "## Where the papers contradict themselves", ""]
    lines += [f"* {plain(line)}" for line in summary["contradictions"]]
    if summary["warnings"]:
        lines += ["", "## Left out", "", *(f"* {plain(line)}" for line in summary["warnings"])]
    return "\n".join([*lines, ""])


def _cells(task: Mapping[str, Any]) -> list[list[str]]:
    return [[row["name"], *(write(row) for _, write in _COLUMNS)] for row in task["rows"]]


def _claims(task: Mapping[str, Any]) -> list[list[str]]:
    """Return the papers' figures with ours."""
    return [
        [
            claim["table"], claim["name"], f"{claim['value']:.4g}",
            or_dash(claim["ours"] and claim["ours"]["metric"], "{:.4f}".format),
            claim["ours"]["name"] if claim["ours"] else DASH,
        ]
        for claim in task["papers"]
    ]  # fmt: skip


def _interval(row: Row) -> str:
    if row["interval"] is None:
        return DASH
    low, high = row["interval"]
    return f"{low:.4f} to {high:.4f} over {row['interval_over']}"
