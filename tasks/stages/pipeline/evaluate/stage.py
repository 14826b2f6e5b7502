"""The stage evaluate: write metrics.json, the predictions as Parquet, CSV and JSON, the plots and report.html."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from include.artifacts import write_json
from include.glue import Task
from include.stages import BadInput
from tasks.context import Context, Outcome
from tasks.encoder.batching import TokenTable
from tasks.encoder.inference import predict_logits
from tasks.encoder.loading import load_trained
from tasks.encoder.models import Classifier
from tasks.reporting import drawing
from tasks.scoring.predictions import write_csv
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.verdict import Evidence, Verdict, expected_rows, judge
from tasks.stages.pipeline.evaluate import curves, mistakes, plots, report
from tasks.stages.pipeline.evaluate.calibration import calibrate
from tasks.stages.pipeline.evaluate.operating_points import operating_points
from tasks.stages.pipeline.evaluate.provenance import Provenance, provenance_of
from tasks.stages.pipeline.evaluate.rows import NOTHING, Kept, kept_of, listing, predictions_table, write_json_lines
from tasks.stages.pipeline.evaluate.summary import summarize

log = logging.getLogger(__name__)


def run(context: Context) -> Outcome:
    """Score the dev split and, if there is one, the held-out split with the trained model, and write the results."""
    experiment, inputs = context.experiment, context.inputs
    task, splits, trained = experiment.task, inputs["preprocess"].path, inputs["train"].path
    model = load_trained(trained / "model")
    limits = model.spec.thresholds
    dev = score(task, model, splits / "dev").cross_fitted()
    heldout = None
    if (splits / "heldout").is_dir():
        heldout = score(task, model, splits / "heldout").at_thresholds(limits)
    summary = summarize(dev, heldout, limits)
    evidence = Evidence(summary, dev.labels, dev.predicted)
    verdict = judge(experiment, evidence, expected_rows(experiment, inputs))
    kept = {} if experiment.preprocessing.resplit else kept_of(inputs["validate"].path / "kept-dev.parquet", dev)
    history, escape = trained / "metrics.jsonl", experiment.prediction.escape_formulas
    write(context.output, dev, summary, verdict, history, provenance_of(context), kept, escape)
    log.info("%s: %s %s on %d rows", task.name, task.metric, summary["metrics"][task.metric], len(dev))
    files = {"report": "report.html", "predictions": "predictions.csv"}
    return Outcome({"metrics": summary["metrics"], "rows": len(dev), "files": files})


def score(task: Task, model: Classifier, folder: Path) -> ScoredSplit:
    """Compute the model's logits for a split.

    Args:
        task: The task.
        model: The model.
        folder: The folder of the split in preprocess's artifact.

    Raises:
        BadInput: If the split is empty, or if a logit is not finite.
    """
    table = TokenTable.open(folder)
    if not len(table):
        raise BadInput(f"{folder} contains no rows to evaluate on: add rows to the split and run validate again")
    logits = predict_logits(model, table)
    if not np.isfinite(logits).all():
        raise BadInput("the model's logits are not finite, so its training diverged: lower training.learning_rate")
    return ScoredSplit.of(task, table, logits)


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
    html = report.render(dev.task, summary, verdict, mistakes.worst(dev, kept), images, provenance)
    (folder / "report.html").write_text(html, encoding="utf-8")


def _draw(folder: Path, dev: ScoredSplit, summary: Mapping[str, Any], history: Path) -> dict[str, Path]:
    """Draw the plots for the task's kind, and return name to file."""
    figures = {"training": plots.training(curves.read(history, dev.task.metric), dev.task.metric)}
    if dev.task.kind == "classification":
        figures["reliability"] = plots.reliability(calibrate(dev))
        if dev.task.outputs > report.READABLE:
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
