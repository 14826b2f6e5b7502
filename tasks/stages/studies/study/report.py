"""The report of a study, as a page and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from tasks.reporting import page
from tasks.reporting.markdown import plain, table
from tasks.stages.studies.study.formatting import REMARK, Cell, columns, table_5

TEMPLATE = Path(__file__).with_name("report.html.j2")


def html(summary: Mapping[str, Any], plots: Mapping[str, Path]) -> str:
    """Return the page.

    Args:
        summary: The content of study.json.
        plots: Title to PNG file. The images are embedded in the page.
    """
    images = [{"title": title, "source": page.inline(file)} for title, file in plots.items()]
    found = columns(summary)
    best = max((row for row in summary["rows"] if row["metric"] is not None), key=itemgetter("metric"), default=None)
    return page.render(
        TEMPLATE, summary=summary, best=best, plots=images, titles=[column.title for column in found],
        rows=[(row, [column.cell(row) for column in found]) for row in summary["rows"]],
        beside=table_5(summary), remark=REMARK,
    )  # fmt: skip


def markdown(summary: Mapping[str, Any]) -> str:
    """Return the tables as Markdown.

    Args:
        summary: The content of study.json.
    """
    found = columns(summary)
    lines = [f"# Study {plain(summary['study'])}", ""]
    lines += [f"Task {plain(summary['task'])}; relative figures are to `{plain(summary['reference'])}`. {REMARK}", ""]
    lines += table(
        ["configuration", *(column.title for column in found)],
        ([row["configuration"], *(_words(column.cell(row)) for column in found)] for row in summary["rows"]),
    )
    if summary["table_5"]:
        titles = ("score", "throughput", "memory")
        lines += ["", "## The paper's table 5", ""]
        lines += table(
            ["configuration", *(f"paper: {title}" for title in titles), *(f"ours: {title}" for title in titles)],
            ([row.configuration, *row.paper, *row.ours] for row in table_5(summary)),
        )
    if summary["warnings"]:
        lines += ["", "## Left out", "", *(f"* {plain(warning)}" for warning in summary["warnings"])]
    return "\n".join([*lines, ""])


def _words(cell: Cell) -> str:
    return f"{cell.value} ({cell.relative})" if cell.relative else cell.value
