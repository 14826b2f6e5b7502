"""The Data Docs: a front page with all rules, and Great Expectations' pages. They need no network and no scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

_ENVIRONMENT = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
#: What the pages of Great Expectations load from elsewhere or need scripts for, and their styles, which we replace.
_REMOVED = re.compile(r"(?s)<(script|style|footer)\b.*?</\1>|<(link|img)\b[^>]*>|Data asset: None<br>")
_ICON = re.compile(r'<i class="fas fa-([\w-]+)[^>]*></i>')
_MARKS = {"check-circle": ("passed", "✔ passed"), "times": ("critical", "✘ failed")}
#: What the columns mean that the rules check and no file has.
_MEANINGS = {
    "row": "the number of the row in its split",
    "line": "the line of the file that it was read from",
    "text_key": "a number that equal texts of a split have in common",
    "overlap_key": "a number that texts have in common which count as equal in different splits",
    "characters": "the length of the text",
    "labels_of_text": "how many different labels the rows with this text have",
    "overlaps": "whether the text also occurs in train; for train, whether it occurs in dev or test",
}


@dataclass(frozen=True)
class RuleResult:
    """The result of one rule on one split, with the observation in words, and what a failure means or how to fix it.

    Attributes:
        observed: The number of rows that violate the rule, or the observed value if it applies to the split as a whole.
        rows: The number of rows that were checked; None if the rule applies to the split as a whole.
    """

    split: str
    rule: str
    severity: str
    success: bool
    observed: Any
    rows: int | None
    seen: str
    remedy: str

    @property
    def message(self) -> str:
        """The result as one line of text."""
        return f"{self.split}: {self.rule}: {self.seen}; {self.remedy}"


def write_index(docs: Path, title: str, rows: Mapping[str, int], findings: Sequence[RuleResult]) -> None:
    """Write index.html in place of Great Expectations' own, which has a table that needs scripts from the network.

    Its other pages are changed so that they need none: they get a style and a verdict, and say what our columns mean.
    """
    verdicts = {split: _verdict([finding for finding in findings if finding.split == split]) for split in rows}
    pages = {}
    for split in rows:
        page = next((docs / "validations" / split).rglob("*.html"))
        pages[split] = page.relative_to(docs)
        _rewrite(page, docs, split, verdicts[split])
        _rewrite(docs / "expectations" / f"{split}.html", docs, split, None)
    content = _ENVIRONMENT.get_template("index.html.j2").render(
        title=title, rows=rows, findings=findings, pages=pages, verdicts=verdicts
    )
    (docs / "index.html").write_text(content, encoding="utf-8")


def _verdict(findings: Sequence[RuleResult]) -> dict[str, str]:
    """Return what the rules say of a split: "passed", "warning" or "critical", and the same in words."""
    critical, warnings = (
        [finding.rule for finding in findings if not finding.success and finding.severity == severity]
        for severity in ("critical", "warning")
    )
    if critical:
        words = f"cannot be used, because critical rules fail ({', '.join(critical)})"
        return {"result": "critical", "words": words}
    if warnings:
        return {"result": "warning", "words": f"can be used, with warnings ({', '.join(warnings)})"}
    return {"result": "passed", "words": f"passes all {len(findings)} rules"}


def _rewrite(page: Path, docs: Path, split: str, verdict: dict[str, str] | None) -> None:
    """Make a page of Great Expectations independent of the network, and add our head to it."""
    front = "../" * len(page.relative_to(docs).parent.parts) + "index.html"
    head = _ENVIRONMENT.get_template("head.html.j2").render(
        front=front, split=split, verdict=verdict, columns=_MEANINGS
    )
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
