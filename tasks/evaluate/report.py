"""The report of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from include.glue import Task
from tasks import page

TEMPLATE = Path(__file__).with_name("report.html.j2")
#: What the plots are called in the text that stands in for them.
PLOTS = {
    "confusion": "Confusion matrix",
    "reliability": "Reliability diagram",
    "scatter": "True against predicted scores",
    "errors": "Histogram of errors",
    "training": "Training loss and dev metric over the steps",
}


def render(
    task: Task,
    summary: Mapping[str, Any],
    mistakes: list[dict[str, Any]],
    plots: Mapping[str, Path],
    facts: Mapping[str, Mapping[str, Any]],
) -> str:
    """The report's HTML.

    Args:
        task: what was learned.
        summary: what metrics.json says (tasks/evaluate/summary.py).
        mistakes: the worst rows (tasks/evaluate/mistakes.py).
        plots: name to PNG; they are put into the page.
        facts: title to settings, shown at the end: how the model was made.
    """
    images = {name: {"title": PLOTS[name], "source": page.inline(file)} for name, file in plots.items()}
    return page.render(TEMPLATE, task=task, summary=summary, mistakes=mistakes, plots=images, facts=facts)
