"""The stage challenge: write challenge.json and challenge.html, and end with exit code 3 if the model is refused."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from typing import Any

from include.artifacts import write_json
from include.stages import ExitCode
from tasks.context import Context, Outcome
from tasks.encoder.batching import TokenTable
from tasks.stages.lifecycle.challenge import report
from tasks.stages.lifecycle.challenge.costs import costs
from tasks.stages.lifecycle.challenge.disagreements import disagreements
from tasks.stages.lifecycle.challenge.models import ScoredModel, load_challenger, load_champion
from tasks.stages.lifecycle.challenge.verdict import Verdict, judge

log = logging.getLogger(__name__)
REMEDY = (
    "keep the champion, train on more rows or with other settings, or increase retraining.margin, slice_margin, "
    "max_latency or max_size; if other work has disturbed the latency, remove this artifact to measure it again"
)


def run(context: Context) -> Outcome:
    """Compare the new model with the champion, and write the evidence whether the model passes or is refused.

    Returns:
        The outcome, with the exit code GATE_FAILED if the new model is refused.
    """
    task, options = context.experiment.task, context.experiment.retraining
    named = json.loads((context.inputs["champion"].path / "champion.json").read_text(encoding="utf-8"))
    models = _models(context, named)
    model = models["model"].scored
    champion = models["champion"].scored if "champion" in models else None
    verdict = judge(model, champion, named, costs(models, options), options)
    log.info("%s: %s, %s", task.name, verdict.outcome, "passed" if verdict.passed else "refused")
    words, apart = report.words(verdict), disagreements(model, champion)
    shown = {title: asdict(lost) for title, lost in apart.items()}
    write_json(context.output / "challenge.json", {**verdict.as_json(), "words": words, "apart": shown})
    html = report.render(task, verdict, words, apart)
    (context.output / "challenge.html").write_text(html, encoding="utf-8")
    if verdict.passed:
        return Outcome(_result(verdict, len(model)))
    return Outcome(_result(verdict, len(model)), ExitCode.GATE_FAILED, _message(task.name, verdict))


def _models(context: Context, named: dict[str, str]) -> dict[str, ScoredModel]:
    """Load the challenger as "model" and, if there is one, the champion as "champion"."""
    task, inputs = context.experiment.task, context.inputs
    dev = TokenTable.open(inputs["preprocess"].path / "dev")
    predictions = inputs["evaluate"].path / "predictions.parquet"
    models = {"model": load_challenger(task, dev, inputs["train"].path / "model", inputs["package"].path, predictions)}
    if named["version"]:
        validated = inputs["validate"].path / "dev.parquet"
        models["champion"] = load_champion(task, dev, validated, named, context.run.store)
    return models


def _result(verdict: Verdict, rows: int) -> dict[str, Any]:
    """Return the result: "metric" is the task's metric; difference, interval and margin refer to "compared"."""
    found = verdict.whole.found if verdict.whole else None
    return {
        "outcome": verdict.outcome,
        "passed": verdict.passed,
        "compared": found.metric if found else None,
        "difference": found.difference if found else None,
        "interval": found.interval if found else None,
        "p": found.p if found else None,
        "margin": verdict.whole.margin if verdict.whole else None,
        "rows": rows,
        "champion": verdict.champion["version"],
        "metric": verdict.metric,
        "metrics": {name: values and values[verdict.metric] for name, values in verdict.metrics.items()},
        "reasons": verdict.reasons,
        "files": {"challenge": "challenge.html"},
    }


def _message(task: str, verdict: Verdict) -> str:
    return f"the new model of {task} is refused: {'; '.join(verdict.reasons)}. Remedy: {REMEDY}"
