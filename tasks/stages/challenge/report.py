"""The page for whoever has to approve: the verdict in words, both models' figures, the rows that tell them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from include.glue import Task
from tasks.reporting import page
from tasks.stages.challenge.verdict import Verdict

TEMPLATE = Path(__file__).with_name("report.html.j2")


def render(task: Task, verdict: Verdict, words: str, apart: dict[str, list[dict[str, Any]]]) -> str:
    """The page's HTML."""
    return page.render(TEMPLATE, task=task, verdict=verdict, words=words, apart=apart)


def words(verdict: Verdict) -> str:
    """What the comparison over all dev rows says, in a sentence or two."""
    if verdict.whole is None:
        return "There is no champion yet, so there is nothing to compare with."
    found, margin = verdict.whole.found, f"{verdict.whole.margin:g}"
    match verdict.outcome:
        case "worse":
            return f"The new model is worse: it loses more than {margin} of {found.metric}, and more than chance would."
        case "not worse":
            return f"The new model is not worse: at most {margin} of {found.metric} is lost, as far as the rows tell."
        case _:
            return (
                f"Undecided: {found.rows:,} rows cannot tell whether more than {margin} of {found.metric} is lost. "
                "A larger dev split can, or a wider retraining.margin."
            )
