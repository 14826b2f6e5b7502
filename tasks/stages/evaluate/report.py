"""The report of an evaluation: its parts are the templates in parts/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from include.glue import Task
from tasks.reporting import page
from tasks.scoring.verdict import Verdict
from tasks.stages.evaluate.made import Made

TEMPLATE = Path(__file__).with_name("report.html.j2")
#: Of a confusion matrix that is a table with names and counts; beyond, it is a picture with the classes' numbers.
READABLE = 12
#: What the plots are called in the text that stands in for them.
PLOTS = {
    "confusion": "Confusion matrix",
    "reliability": "Reliability diagram",
    "operating": "Precision over recall, and ROC curve",
    "scatter": "True against predicted scores",
    "errors": "Histogram of errors",
    "training": "Loss and dev metric over the steps",
}


def render(
    task: Task,
    summary: Mapping[str, Any],
    verdict: Verdict,
    mistakes: list[dict[str, Any]],
    plots: Mapping[str, Path],
    made: Made,
) -> str:
    """The report's HTML.

    Args:
        task: what was learned.
        summary: what metrics.json says (tasks/stages/evaluate/summary.py).
        verdict: what the gate will say of it.
        mistakes: the worst rows (tasks/stages/evaluate/mistakes.py).
        plots: name to PNG; they are put into the page.
        made: where the model comes from.
    """
    images = {name: {"title": PLOTS[name], "source": page.inline(file)} for name, file in plots.items()}
    return page.render(
        TEMPLATE, task=task, summary=summary, verdict=verdict, mistakes=mistakes, plots=images, made=made,
        readable=task.outputs <= READABLE,
    )  # fmt: skip
