"""The Data Docs: a front page with all rules, and Great Expectations' pages. They need no network and no scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader

from tasks.stages.pipeline.validate.rule_result import RuleResult
from tasks.stages.pipeline.validate.tables import MEANINGS

_ENVIRONMENT = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
#: What the pages of Great Expectations load from elsewhere or need scripts for, and their styles, which we replace.
_REMOVED = re.compile(r"(?s)<(script|style|footer)\b.*?</\1>|<(link|img)\b[^>]*>|Data asset: None<br>")
_ICON = re.compile(r'<i class="fas fa-([\w-]+)[^>]*></i>')
_MARKS = {"check-circle": ("passed", "✔ passed"), "times": ("critical", "✘ failed")}


class Verdict(NamedTuple):
    """What the rules say of a split: "passed", "warning" or "critical", and the same in words."""

    result: str
    words: str

    @classmethod
    def of(cls, split: str, findings: Sequence[RuleResult]) -> Verdict:
        """Return the verdict on a split."""
        own = [finding for finding in findings if finding.split == split]
        critical, warnings = (
            [finding.rule for finding in own if not finding.success and finding.severity == severity]
            for severity in ("critical", "warning")
        )
        if critical:
            return cls("critical", f"cannot be used, because critical rules fail ({', '.join(critical)})")
        if warnings:
            return cls("warning", f"can be used, with warnings ({', '.join(warnings)})")
        return cls("passed", f"passes all {len(own)} rules")


def write_index(docs: Path, title: str, rows: Mapping[str, int], findings: Sequence[RuleResult]) -> Path:
    """Write index.html and return its path.

    It replaces the front page of Great Expectations, whose table needs scripts from the network. Its other pages are
    changed so that they need none: they get a style and a verdict, and say what our columns mean.

    Args:
        docs: The folder with the pages of Great Expectations.
        title: The title of the page.
        rows: Each split that was checked, with its number of rows.
        findings: The results of all rules.
    """
    verdicts = {split: Verdict.of(split, findings) for split in rows}
    pages = {}
    for split in rows:
        page = next((docs / "validations" / split).rglob("*.html"))
        pages[split] = page.relative_to(docs)
        _rewrite(page, docs, split, verdicts[split])
        _rewrite(docs / "expectations" / f"{split}.html", docs, split, None)
    content = _ENVIRONMENT.get_template("index.html.j2").render(
        title=title, rows=rows, findings=findings, pages=pages, verdicts=verdicts
    )
    index = docs / "index.html"
    index.write_text(content, encoding="utf-8")
    return index


def _rewrite(page: Path, docs: Path, split: str, verdict: Verdict | None) -> None:
    """Make a page of Great Expectations independent of the network, and add our head to it."""
    front = "../" * len(page.relative_to(docs).parent.parts) + "index.html"
    head = _ENVIRONMENT.get_template("head.html.j2").render(front=front, split=split, verdict=verdict, columns=MEANINGS)
    style = _ENVIRONMENT.get_template("style.css").render()
    text = _ICON.sub(_mark, _REMOVED.sub("", page.read_text(encoding="utf-8")))
    text = text.replace("</head>", f"<style>{style}</style></head>", 1).replace("<body>", f"<body>{head}", 1)
    page.write_text(text, encoding="utf-8")


def _mark(icon: re.Match[str]) -> str:
    """Return the text that stands for an icon of a font that has to be loaded."""
    if icon[1] not in _MARKS or "aria-hidden" in icon[0]:  # the latter stands before its own words
        return ""
    name, text = _MARKS[icon[1]]
    return f'<span class="{name}">{text}</span>'
