"""The stage evaluate: metrics.json, predictions.parquet, the plots and report.html."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from include.artifacts import Artifact, write_json
from include.experiment import Experiment
from include.glue import Task
from include.runs import Run
from include.stages import BadInput
from tasks import drawing
from tasks.context import Context, Outcome
from tasks.encoder.batching import TokenTable
from tasks.encoder.inference import predict_logits
from tasks.encoder.models import Classifier, load_trained
from tasks.evaluate import curves, mistakes, plots, report
from tasks.evaluate.calibration import calibrate
from tasks.evaluate.summary import summarise
from tasks.scored import Scored

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Nothing outside the store is read."""
    return ""


def run(context: Context) -> Outcome:
    """Score the dev split (and a held-out one) with the trained model and write what was found."""
    task = context.experiment.task
    splits = context.inputs["preprocess"].path
    trained = context.inputs["train"].path
    model = load_trained(trained / "model")
    dev = score(task, model, splits / "dev")
    heldout = score(task, model, splits / "heldout") if (splits / "heldout").is_dir() else None
    summary = write(context.output, dev, heldout, trained / "metrics.jsonl", facts(context.inputs))
    log.info("%s: %s %s on %d rows", task.name, task.metric, summary["metrics"][task.metric], len(dev))
    return Outcome({"metrics": summary["metrics"], "rows": len(dev), "files": {"report": "report.html"}})


def score(task: Task, model: Classifier, folder: Path) -> Scored:
    """The split in the folder with the model's logits. Raises BadInput when it is empty or a logit is not finite."""
    table = TokenTable.open(folder)
    if not len(table):
        raise BadInput(f"{folder} holds no rows: there is nothing to evaluate on")
    logits = predict_logits(model, table)
    if not np.isfinite(logits).all():
        raise BadInput("the model's logits are not finite, so its training diverged: lower training.learning_rate")
    return Scored(task, table.rows, table.labels, logits, table.sentences(np.arange(len(table))))


def write(
    folder: Path, dev: Scored, heldout: Scored | None, history: Path, made: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Write the artifact's files; what metrics.json says."""
    summary = summarise(dev, heldout)
    write_json(folder / "metrics.json", summary)
    pq.write_table(predictions_table(dev), folder / "predictions.parquet")
    images = _draw(folder, dev, summary, history)
    html = report.render(dev.task, summary, mistakes.worst(dev), images, made)
    (folder / "report.html").write_text(html, encoding="utf-8")
    return summary


def predictions_table(scored: Scored) -> pa.Table:
    """Columns row, label and prediction, and for a classifier the probabilities of all classes."""
    columns = {"row": scored.rows, "label": scored.labels, "prediction": scored.predicted}
    if scored.task.kind == "classification":
        columns["probabilities"] = pa.array(list(scored.probabilities), type=pa.list_(pa.float64()))
    return pa.table(columns)


def facts(inputs: Mapping[str, Artifact]) -> dict[str, dict[str, Any]]:
    """How the model was made, by title, for the report; all of it out of the sealed inputs."""
    train = inputs["train"].manifest
    settings = {
        "encoder": train.part["model"]["name"],
        "pooling": train.part["model"]["pooling"],
        **{name.replace("_", " "): value for name, value in train.part["training"].items()},
        "gradient compression": train.part["communication"]["compression"],
    }
    keys = {f"{name} artifact": artifact.manifest.key for name, artifact in inputs.items()}
    rows = inputs["preprocess"].manifest.result.get("rows", {})
    data = {"source": inputs["validate"].manifest.part["data"]["source"], **{f"{k} rows": v for k, v in rows.items()}}
    return {"Training": settings, "Data and provenance": {**data, **keys, "code revision": train.revision}}


def _draw(folder: Path, dev: Scored, summary: Mapping[str, Any], history: Path) -> dict[str, Path]:
    """Draw the plots of the task's kind; name to file."""
    figures = {"training": plots.training(curves.read(history, dev.task.metric), dev.task.metric)}
    if dev.task.kind == "classification":
        figures["confusion"] = plots.confusion(summary["confusion"], dev.task.label_names)
        figures["reliability"] = plots.reliability(calibrate(dev))
    else:
        figures["scatter"] = plots.scatter(dev.labels, dev.predicted)
        figures["errors"] = plots.errors(dev.labels, dev.predicted)
    files = {name: folder / f"{name}.png" for name in figures}
    for name, figure in figures.items():
        drawing.save(figure, files[name])
    return files
