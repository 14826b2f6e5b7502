"""The report of an evaluation. Its sections are the templates in parts/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from include.artifacts import write_json
from include.glue import Task
from tasks.reporting import drawing, page
from tasks.scoring.predictions import write_csv
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.thresholds import FOLDS
from tasks.scoring.verdict import Verdict
from tasks.stages.pipeline.evaluate import curves, mistakes, plots
from tasks.stages.pipeline.evaluate.calibration import calibrate
from tasks.stages.pipeline.evaluate.operating_points import operating_points
from tasks.stages.pipeline.evaluate.provenance import Provenance
from tasks.stages.pipeline.evaluate.rows import NOTHING, Kept, listing, predictions_table, write_json_lines

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


def write(
    folder: Path,
    dev: ScoredSplit,
    summary: Mapping[str, Any],
    verdict: Verdict,
    history: Path,
    provenance: Provenance,
    kept: Kept = NOTHING,
    escape: bool = False,
) -> None:
    """Write the artifact's files. `kept` are the columns of data.keep, and `escape` is prediction.escape_formulas."""
    write_json(folder / "metrics.json", summary)
    pq.write_table(predictions_table(dev), folder / "predictions.parquet")
    write_csv(listing(dev, kept), folder / "predictions.csv", dev.task.separator, escape)
    write_json_lines(dev, folder / "rows.jsonl")
    images = _draw(folder, dev, summary, history)
    html = render(dev.task, summary, verdict, mistakes.worst(dev, kept), images, provenance)
    (folder / "report.html").write_text(html, encoding="utf-8")


def _draw(folder: Path, dev: ScoredSplit, summary: Mapping[str, Any], history: Path) -> dict[str, Path]:
    """Draw the plots for the task's kind, and return name to file."""
    figures = {"training": plots.training(curves.read(history, dev.task.metric), dev.task.metric)}
    if dev.task.kind == "classification":
        figures["reliability"] = plots.reliability(calibrate(dev))
        if dev.task.outputs > READABLE:
            figures["confusion"] = plots.confusion(summary["confusion"])
        if found := operating_points(dev):
            figures["operating"] = plots.operating(found)
    elif dev.task.kind == "regression":
        figures["scatter"] = plots.scatter(dev.labels, dev.predicted)
        figures["errors"] = plots.errors(dev.labels, dev.predicted)
    files = {name: folder / f"{name}.png" for name in figures}
    for name, figure in figures.items():
        drawing.save(figure, files[name])
    return files


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
