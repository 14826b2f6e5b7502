"""The stage challenge: write challenge.json and challenge.html, and end with exit code 3 if the model is refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict

from include.artifacts import write_json
from include.stages import ExitCode
from tasks.context import Context, Outcome

log = logging.getLogger(__name__)
REMEDY = (
    "keep the champion, train on more rows or with other settings, or increase retraining.margin, slice_margin, "
    "max_latency or max_size; if other work has disturbed the latency, remove this artifact to measure it again"
)


def _capacity(context: Context, champion: Mapping[str, str]) -> str:
    """Say how many more or fewer texts the service answers with the new model than with the champion."""
    from tasks.inference.capacity import Capacity, compared

    before = Capacity.of(context.run.store.path("package", champion.get("package") or "none"))
    return compared(Capacity.of(context.inputs["package"].path), "the new model", before, "the champion")


def run(context: Context) -> Outcome:
    """Compare the new model with the champion, and write the evidence whether the model passes or is refused."""
    from tasks.stages.lifecycle.challenge import report
    from tasks.stages.lifecycle.challenge.comparison import costs, judge
    from tasks.stages.lifecycle.challenge.models import load_models

    task, options = context.experiment.task, context.experiment.retraining
    named = json.loads((context.inputs["champion"].path / "champion.json").read_text(encoding="utf-8"))
    models = load_models(context, named)
    model = models["model"].scored
    champion = models["champion"].scored if "champion" in models else None
    verdict = judge(model, champion, named, costs(models, options), options, _capacity(context, named))
    log.info("%s: %s, %s", task.name, verdict.outcome, "passed" if verdict.passed else "refused")
    apart = report.disagreements(model, champion)
    shown = {title: asdict(lost) for title, lost in apart.items()}
    write_json(context.output / "challenge.json", {**verdict.as_json(), "apart": shown})
    (context.output / "challenge.html").write_text(report.render(task, verdict, apart), encoding="utf-8")
    if verdict.passed:
        return Outcome(verdict.result(len(model)))
    message = f"the new model of {task.name} is refused: {'; '.join(verdict.reasons)}. Remedy: {REMEDY}"
    return Outcome(verdict.result(len(model)), ExitCode.GATE_FAILED, message)
