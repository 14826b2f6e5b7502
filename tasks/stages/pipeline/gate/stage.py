"""The stage gate: write verdict.json and verdict.html, and end with exit code 3 if the model is not good enough."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from include.artifacts import Artifact, write_json
from include.stages import ExitCode
from tasks.context import Context, Outcome
from tasks.encoder.labels import from_column
from tasks.reporting import page
from tasks.scoring.verdict import Evidence, Verdict, expected_rows, judge

TEMPLATE = Path(__file__).with_name("verdict.html.j2")


def run(context: Context) -> Outcome:
    """Judge the results of evaluate, and write the verdict whether the model passes or fails.

    Returns:
        The outcome, with the exit code GATE_FAILED if the model does not pass.
    """
    experiment = context.experiment
    evidence = read_evidence(context.inputs["evaluate"])
    verdict = judge(experiment, evidence, expected_rows(experiment, context.inputs))
    write_json(context.output / "verdict.json", verdict.as_json())
    html = page.render(TEMPLATE, verdict=verdict, run=context.run.folder.name)
    (context.output / "verdict.html").write_text(html, encoding="utf-8")
    result = {**verdict.as_json(), "files": {"verdict": "verdict.html", "checks": "verdict.json"}}
    if verdict.passed:
        return Outcome(result)
    return Outcome(result, ExitCode.GATE_FAILED, _message(verdict))


def read_evidence(evaluate: Artifact) -> Evidence:
    """Read the results of the stage evaluate from its artifact."""
    summary = json.loads((evaluate.path / "metrics.json").read_text(encoding="utf-8"))
    table = pq.read_table(evaluate.path / "predictions.parquet", columns=["label", "prediction"])
    return Evidence(summary, from_column(table["label"]), from_column(table["prediction"]))


def _message(verdict: Verdict) -> str:
    return f"the model of {verdict.task} did not pass the gate: {'; '.join(verdict.reasons)}{_remedy(verdict)}"


def _remedy(verdict: Verdict) -> str:
    """Return what helps a model that is not good enough. Other reasons say themselves what to do."""
    failed = [check for check in verdict.checks if check.reason and check.value is not None]
    if not failed:
        return ""
    lower = any(check.value < check.threshold and check.threshold > 0 for check in failed if check.value is not None)
    ways = ["train longer", "use a larger encoder (model.name)", *(["lower the threshold"] if lower else [])]
    return f". Remedy: {', '.join(ways[:-1])}, or {ways[-1]}"
