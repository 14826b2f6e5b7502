"""The front page of the Data Docs: all rules on one page that works without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from tasks.stages.validate.rule_result import RuleResult


def write_index(docs: Path, title: str, rows: Mapping[str, int], findings: Sequence[RuleResult]) -> Path:
    """Write index.html and return its path.

    It replaces the front page of Great Expectations, whose table needs scripts from the network.

    Args:
        docs: The folder with the pages of Great Expectations.
        title: The title of the page.
        rows: Each split that was checked, with its number of rows.
        findings: The results of all rules.
    """
    pages = {split: next((docs / "validations" / split).rglob("*.html")).relative_to(docs) for split in rows}
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    page = environment.get_template("index.html.j2").render(title=title, rows=rows, findings=findings, pages=pages)
    index = docs / "index.html"
    index.write_text(page, encoding="utf-8")
    return index
