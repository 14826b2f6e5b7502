"""The page for the approval: the verdict in words, the metrics of both models, and the rows on which they disagree."""

from __future__ import annotations

from pathlib import Path

from include.glue import Task
from tasks.reporting import page
from tasks.stages.lifecycle.challenge.disagreements import Lost
from tasks.stages.lifecycle.challenge.verdict import Verdict

TEMPLATE = Path(__file__).with_name("report.html.j2")


def render(task: Task, verdict: Verdict, words: str, apart: dict[str, Lost]) -> str:
    """Return the HTML of the page.

    Args:
        task: The task.
        verdict: The verdict.
        words: The verdict in words, as `words` returns it.
        apart: The rows on which the models disagree, by title.
    """
    return page.render(TEMPLATE, task=task, verdict=verdict, words=words, apart=apart)


def words(verdict: Verdict) -> str:
    """Summarize the comparison over all dev rows in one or two sentences."""
    if verdict.whole is None:
        return "There is no champion yet, so there is nothing to compare with."
    found, margin = verdict.whole.found, f"{verdict.whole.margin:g}"
    match verdict.outcome:
        case "worse":
            return (
                f"The new model is worse: it loses more than {margin} of {found.metric}, which chance cannot explain."
            )
        case "not worse":
            return (
                f"The new model is not worse: its loss of {found.metric} is at most {margin}, at a confidence of 95 %."
            )
        case _:
            return (
                f"Undecided: {found.rows:,} rows are too few to show whether more than {margin} of {found.metric} is "
                "lost. Use a larger dev split or a wider retraining.margin."
            )
