"""The report: one HTML file that needs nothing beside it."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from include.glue import Task

TEMPLATE = "report.html.j2"
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
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["figure"] = _figure
    images = {name: {"title": PLOTS[name], "source": _inline(file)} for name, file in plots.items()}
    template = environment.get_template(TEMPLATE)
    return template.render(task=task, summary=summary, mistakes=mistakes, plots=images, facts=facts)


def _figure(value: float | None) -> str:
    """A metric as people compare them: four decimals."""
    return "undefined" if value is None or not math.isfinite(value) else f"{value:.4f}"


def _inline(file: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode("ascii")
