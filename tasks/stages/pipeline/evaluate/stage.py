"""The stage evaluate: write metrics.json, the predictions as Parquet, CSV and JSON, the plots and report.html."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome

log = logging.getLogger(__name__)


def plan(experiment: Experiment, run: Run) -> Mapping[str, float]:
    """Return the gate's thresholds, because the report shows them."""
    return experiment.thresholds


def run(context: Context, thresholds: Mapping[str, float]) -> Outcome:
    """Score the dev split and, if there is one, the held-out split with the trained model, and write the results."""
    from tasks.encoder.loading import load_trained
    from tasks.scoring.verdict import Evidence, expected_rows, judge
    from tasks.stages.pipeline.evaluate.provenance import provenance_of
    from tasks.stages.pipeline.evaluate.report import write
    from tasks.stages.pipeline.evaluate.rows import kept_of
    from tasks.stages.pipeline.evaluate.summary import score, summarize

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
