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


def run(context: Context, plan: Mapping[str, float]) -> Outcome:
    """Score the dev split and, if there is one, the held-out split with the trained model, and write the results."""
    from tasks.encoder.loading import load_trained
    from tasks.scoring.verdict import verdict_on
    from tasks.stages.pipeline.evaluate.explaining import explain_worst
    from tasks.stages.pipeline.evaluate.report import provenance_of, write_report
    from tasks.stages.pipeline.evaluate.rows import kept_of, write_results
    from tasks.stages.pipeline.evaluate.summary import score, summarize

    experiment, inputs, output = context.experiment, context.inputs, context.output
    task, splits, trained = experiment.task, inputs["preprocess"].path, context.trained
    model = load_trained(trained / "model")
    limits = model.spec.thresholds
    dev = score(task, model, splits / "dev").cross_fitted()
    heldout = None
    if (splits / "heldout").is_dir():
        heldout = score(task, model, splits / "heldout").at_thresholds(limits)
    summary = summarize(dev, heldout, limits)
    if teach := inputs.get("teach"):
        from tasks.inference.chosen_model import teachers_root
        from tasks.stages.pipeline.evaluate.teacher import compare_with_teacher

        root = teachers_root(experiment, context.run)
        summary["teacher"] = compare_with_teacher(dev, trained / "model", model, teach.path, root)
    kept = {} if experiment.preprocessing.resplit else kept_of(inputs["validate"].path / "kept-dev.parquet", dev)
    explained = explain_worst(dev, model, trained / "model")
    write_results(output, dev, summary, kept, experiment.prediction.escape_formulas, explained)
    verdict = verdict_on(output, experiment, inputs)
    write_report(output, dev, summary, verdict, trained / "metrics.jsonl", provenance_of(context), kept, explained)
    log.info("%s: %s %s on %d rows", task.name, task.metric, summary["metrics"][task.metric], len(dev))
    files = {"report": "report.html", "predictions": "predictions.csv"}
    of_teacher = {"teacher": summary["teacher"]} if "teacher" in summary else {}
    return Outcome({"metrics": summary["metrics"], "rows": len(dev), **of_teacher, "files": files})
