"""The front page of the Data Docs: every rule on one page that needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from include.glue import SPLITS
from tasks.stages.validate.finding import Finding


def write_index(docs: Path, title: str, rows: Mapping[str, int], findings: Sequence[Finding]) -> Path:
    """Write index.html beside Great Expectations' pages; where it lies.

    Theirs is replaced because it draws its table with scripts from the net.
    """
    pages = {split: next((docs / "validations" / split).rglob("*.html")).relative_to(docs) for split in SPLITS}
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    page = environment.get_template("index.html.j2").render(title=title, rows=rows, findings=findings, pages=pages)
    index = docs / "index.html"
    index.write_text(page, encoding="utf-8")
    return index
