"""The report of an evaluation. Its sections are the templates in parts/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from include.glue import Task
from tasks.reporting import page
from tasks.scoring.thresholds import FOLDS
from tasks.scoring.verdict import Verdict
from tasks.stages.pipeline.evaluate.provenance import Provenance

TEMPLATE = Path(__file__).with_name("report.html.j2")
#: Up to this number of classes, the confusion matrix is a table with names and counts; beyond it, it is a plot.
READABLE = 12
#: The alternative texts of the plots.
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
    provenance: Provenance,
) -> str:
    """Return the HTML of the report.

    Args:
        task: The task.
        summary: The content of metrics.json (tasks/stages/pipeline/evaluate/summary.py).
        verdict: The verdict that the gate will reach.
        mistakes: The worst mistakes (tasks/stages/pipeline/evaluate/mistakes.py).
        plots: Name to PNG file. The images are embedded in the page.
        provenance: The provenance of the model.
    """
    images = {name: {"title": PLOTS[name], "source": page.inline(file)} for name, file in plots.items()}
    return page.render(
        TEMPLATE, task=task, summary=summary, verdict=verdict, mistakes=mistakes, plots=images, provenance=provenance,
        readable=task.outputs <= READABLE, folds=FOLDS,
    )  # fmt: skip
