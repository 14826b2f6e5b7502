"""The stage gate: write verdict.json and verdict.html, and end with exit code 3 if the model is not good enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import Run
from include.stages import ExitCode
from tasks.context import Context, Outcome
from tasks.reporting import page

if TYPE_CHECKING:
    from tasks.scoring.verdict import Verdict

TEMPLATE = Path(__file__).with_name("verdict.html.j2")


def plan(experiment: Experiment, run: Run) -> Mapping[str, float]:
    """Return the thresholds, since those that the experiment does not set come from the task registry."""
    return experiment.thresholds


def run(context: Context, thresholds: Mapping[str, float]) -> Outcome:
    """Judge the results of evaluate, and write the verdict whether the model passes or fails."""
    from tasks.scoring.verdict import verdict_on

    verdict = verdict_on(context.inputs["evaluate"].path, context.experiment, context.inputs)
    write_json(context.output / "verdict.json", verdict.as_json())
    html = page.render(TEMPLATE, verdict=verdict, run=context.run.folder.name)
    (context.output / "verdict.html").write_text(html, encoding="utf-8")
    result = {**verdict.as_json(), "files": {"verdict": "verdict.html", "checks": "verdict.json"}}
    if verdict.passed:
        return Outcome(result)
    reasons = "; ".join(verdict.reasons)
    message = f"the model of {verdict.task} did not pass the gate: {reasons}{_remedy(verdict)}"
    return Outcome(result, ExitCode.GATE_FAILED, message)


def _remedy(verdict: Verdict) -> str:
    """Return what helps a model that is not good enough. Other reasons say themselves what to do."""
    failed = [check for check in verdict.checks if check.reason and check.value is not None]
    low = [check for check in failed if check.bound == "at least"]
    slow = [check for check in low if check.key == "gate.teacher_speed"]
    if not failed:
        return ""
    ways = ["train longer", "use a larger encoder (model.name)"] if len(slow) < len(low) else []
    ways += ["use a smaller encoder (model.name)"] if slow and not ways else []
    ways += ["lower the threshold"] if any((check.value or 0.0) < check.threshold > 0 for check in low) else []
    ways += ["add rows to dev", "raise gate.calibration_error"] if len(low) < len(failed) else []
    return f". Remedy: {', '.join(ways[:-1])}, or {ways[-1]}"
