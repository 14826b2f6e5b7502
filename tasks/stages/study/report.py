"""The report of a study, as a page and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from tasks.reporting import page
from tasks.stages.study.formatting import REMARK, Cell, columns, table_5

TEMPLATE = Path(__file__).with_name("report.html.j2")


def html(summary: Mapping[str, Any], plots: Mapping[str, Path]) -> str:
    """Return the page.

    Args:
        summary: The content of study.json.
        plots: Title to PNG file. The images are embedded in the page.
    """
    images = [{"title": title, "source": page.inline(file)} for title, file in plots.items()]
    table = columns(summary)
    best = max((row for row in summary["rows"] if row["metric"] is not None), key=itemgetter("metric"), default=None)
    return page.render(
        TEMPLATE, summary=summary, best=best, plots=images, titles=[column.title for column in table],
        rows=[(row, [column.cell(row) for column in table]) for row in summary["rows"]],
        beside=table_5(summary), remark=REMARK,
    )  # fmt: skip


def markdown(summary: Mapping[str, Any]) -> str:
    """Return the tables as Markdown.

    Args:
        summary: The content of study.json.
    """
    table = columns(summary)
    lines = [f"# Study {_plain(summary['study'])}", ""]
    lines += [f"Task {_plain(summary['task'])}; relative figures are to `{_plain(summary['reference'])}`. {REMARK}", ""]
    lines += _table(
        ["configuration", *(column.title for column in table)],
        ([row["configuration"], *(_words(column.cell(row)) for column in table)] for row in summary["rows"]),
    )
    if summary["table_5"]:
        titles = ("score", "throughput", "memory")
        lines += ["", "## The paper's table 5", ""]
        lines += _table(
            ["configuration", *(f"paper: {title}" for title in titles), *(f"ours: {title}" for title in titles)],
            ([row.configuration, *row.paper, *row.ours] for row in table_5(summary)),
        )
    if summary["warnings"]:
        lines += ["", "## Left out", "", *(f"* {_plain(warning)}" for warning in summary["warnings"])]
    return "\n".join([*lines, ""])


def _table(titles: list[str], rows: Iterable[list[str]]) -> list[str]:
    whole = [titles, ["---"] * len(titles), *([_plain(text) for text in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in whole]


def _words(cell: Cell) -> str:
    return f"{cell.value} ({cell.relative})" if cell.relative else cell.value


def _plain(text: str) -> str:
    """Escape characters with a meaning in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
