"""The stage challenge: challenge.json and challenge.html, and exit code 3 when the new model is refused."""

from __future__ import annotations

import json
import logging
from typing import Any

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import Run
from include.stages import ExitCode
from tasks.context import Context, Outcome
from tasks.encoder.batching import TokenTable
from tasks.stages.challenge import report
from tasks.stages.challenge.apart import rows_apart
from tasks.stages.challenge.contender import Contender, newcomer, titleholder
from tasks.stages.challenge.costs import costs
from tasks.stages.challenge.verdict import Verdict, judge

log = logging.getLogger(__name__)
REMEDY = (
    "keep the champion, train on more rows or otherwise, or accept more by a wider retraining.margin, slice_margin, "
    "max_latency or max_size; a latency that was taken beside other work is measured again without this artifact"
)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Nothing outside the store is read: the champion's artifact is an input, and latency is a measurement."""
    return ""


def run(context: Context) -> Outcome:
    """Compare the new model with the champion. The evidence is kept either way."""
    task, options = context.experiment.task, context.experiment.retraining
    named = json.loads((context.inputs["champion"].path / "champion.json").read_text(encoding="utf-8"))
    contenders = _contenders(context, named)
    model = contenders["model"].scored
    champion = contenders["champion"].scored if "champion" in contenders else None
    verdict = judge(model, champion, named, costs(contenders, options), options)
    log.info("%s: %s, %s", task.name, verdict.outcome, "passed" if verdict.passed else "refused")
    words, apart = report.words(verdict), rows_apart(model, champion)
    write_json(context.output / "challenge.json", {**verdict.as_json(), "words": words, "apart": apart})
    html = report.render(task, verdict, words, apart)
    (context.output / "challenge.html").write_text(html, encoding="utf-8")
    if verdict.passed:
        return Outcome(_result(verdict, len(model)))
    return Outcome(_result(verdict, len(model)), ExitCode.GATE_FAILED, _message(task.name, verdict))


def _contenders(context: Context, named: dict[str, str]) -> dict[str, Contender]:
    """The new model, and the champion where there is one."""
    task, inputs = context.experiment.task, context.inputs
    dev = TokenTable.open(inputs["preprocess"].path / "dev")
    predictions = inputs["evaluate"].path / "predictions.parquet"
    contenders = {"model": newcomer(task, dev, inputs["train"].path / "model", predictions)}
    if named["version"]:
        contenders["champion"] = titleholder(task, dev, named, context.run.store)
    return contenders


def _result(verdict: Verdict, rows: int) -> dict[str, Any]:
    """The result line. "metric" is the task's; "compared" what difference, interval and margin are of."""
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
    return f"the new model of {task} is refused: {'; '.join(verdict.reasons)}. What can be done: {REMEDY}"
