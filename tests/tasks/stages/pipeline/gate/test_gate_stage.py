"""The stage gate on the files that evaluate leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.artifacts import Artifact, Manifest, write_json
from include.named_experiments import build
from include.runs import Run
from include.stages import ExitCode, result_line
from tasks.context import Outcome
from tasks.stages.pipeline.gate.stage import plan, run
from tests.tasks.contexts import surroundings

SST2 = {"data": {"task": "SST-2", "source": "glue", "path": "glue"}}


def gate(tmp_path: Path, *, accuracy: float = 0.9, rows: int = 10, dev: int = 10, **changes: dict[str, Any]) -> Outcome:
    """Run the gate on made-up evidence; validate counts ten dev rows, preprocess as many as dev says."""
    evaluate = tmp_path / "evaluate"
    evaluate.mkdir()
    calibration, teacher = changes.pop("calibration", {}), changes.pop("teacher", {})
    experiment = build(SST2 | changes, "test")
    summary = {"rows": rows, "metrics": {"accuracy": accuracy}, "slices": {}}
    summary |= {"calibration": calibration, "teacher": teacher}
    write_json(evaluate / "metrics.json", summary)
    labels = [0, 1] * (rows // 2)
    pq.write_table(pa.table({"label": labels, "prediction": [1, *labels[1:]]}), evaluate / "predictions.parquet")
    counts = {"validate": {"rows": {"dev": 10}}, "preprocess": {"rows": {"dev": dev}}, "evaluate": {}}
    inputs = {
        stage: Artifact(tmp_path / stage, Manifest(stage, "key", 1, {}, {}, "", "", result))
        for stage, result in counts.items()
    }
    output = tmp_path / "output"
    output.mkdir()
    run_of = Run(tmp_path / "runs" / "one")
    return run(surroundings(experiment, run_of, inputs, output), plan(experiment, run_of))


def test_green(tmp_path: Path) -> None:
    outcome = gate(tmp_path, gate={"accuracy": 0.9})
    assert (outcome.exit_code, outcome.message) == (ExitCode.DONE, "")
    verdict = json.loads((tmp_path / "output" / "verdict.json").read_text())
    assert verdict["passed"]
    assert outcome.result["files"] == {"verdict": "verdict.html", "checks": "verdict.json"}
    html = (tmp_path / "output" / "verdict.html").read_text(encoding="utf-8")
    assert (
        "<h2>Gate: passed</h2>" in html and '<td class="n">0.9000</td>' in html and '<td class="n">0.5000</td>' in html
    )
    assert json.loads(result_line(outcome.result))["checks"] == verdict["checks"]


def test_red_keeps_the_verdict_and_says_what_to_do(tmp_path: Path) -> None:
    outcome = gate(tmp_path)
    assert outcome.exit_code == ExitCode.GATE_FAILED
    assert outcome.message.startswith(
        "the model of SST-2 did not pass the gate: accuracy 0.9000 is 0.0270 below gate.accuracy"
    )
    assert outcome.message.endswith("Remedy: train longer, use a larger encoder (model.name), or lower the threshold")
    assert "below gate.accuracy" in (tmp_path / "output" / "verdict.html").read_text(encoding="utf-8")
    assert not json.loads((tmp_path / "output" / "verdict.json").read_text())["passed"]


def test_a_model_below_its_baseline_is_not_told_to_lower_the_threshold(tmp_path: Path) -> None:
    message = gate(tmp_path, accuracy=0.5, gate={"accuracy": 0.4}).message
    assert "does not beat its baseline" in message
    assert message.endswith("Remedy: train longer, or use a larger encoder (model.name)")


def test_a_model_that_is_too_sure_is_told_what_helps(tmp_path: Path) -> None:
    calibration = {"ece": 0.25, "interval": [0.2, 0.3]}
    outcome = gate(tmp_path, calibration=calibration, gate={"accuracy": 0.5, "calibration_error": 0.1})
    assert outcome.exit_code == ExitCode.GATE_FAILED
    assert outcome.message.endswith("Remedy: add rows to dev, or raise gate.calibration_error")
    html = (tmp_path / "output" / "verdict.html").read_text(encoding="utf-8")
    assert '<td class="n">at least 0.5</td>' in html and '<td class="n">at most 0.1</td>' in html


def test_a_model_that_is_too_slow_is_not_told_to_grow(tmp_path: Path) -> None:
    teacher = {"rows_per_second": {"times": 1.5}}
    message = gate(
        tmp_path, teacher=teacher, model={"teacher": "large"}, gate={"accuracy": 0.5, "teacher_speed": 2}
    ).message
    assert message.endswith("Remedy: use a smaller encoder (model.name), or lower the threshold")


def test_nobody_is_told_to_lower_a_threshold_of_zero(tmp_path: Path) -> None:
    message = gate(tmp_path, accuracy=-0.1, gate={"accuracy": 0}).message  # correlations may be negative
    assert message.endswith("Remedy: train longer, or use a larger encoder (model.name)")


@pytest.mark.parametrize(
    ("rows", "dev", "resplit", "exit_code"),
    [
        (10, 4, False, ExitCode.DONE),
        (4, 4, False, ExitCode.GATE_FAILED),
        (4, 4, True, ExitCode.DONE),
        (10, 4, True, ExitCode.GATE_FAILED),
    ],
)
def test_rows_are_those_of_validate_or_of_the_new_split(
    tmp_path: Path, rows: int, dev: int, resplit: bool, exit_code: ExitCode
) -> None:
    outcome = gate(tmp_path, rows=rows, dev=dev, preprocessing={"resplit": resplit}, gate={"accuracy": 0.5})
    assert outcome.exit_code == exit_code


def test_a_task_without_a_threshold_of_its_own_is_red(tmp_path: Path) -> None:
    outcome = gate(tmp_path, accuracy=1.0, data={"task": "QNLI", "source": "glue", "path": "glue"})
    assert outcome.exit_code == ExitCode.GATE_FAILED
    assert "set gate.accuracy" in outcome.message and "train longer" not in outcome.message


def test_the_registrys_threshold_is_part_of_the_key(tmp_path: Path) -> None:
    one = Run(tmp_path / "runs" / "one")
    assert plan(build(SST2, "test"), one) == {"accuracy": 0.927}
    assert plan(build(SST2 | {"gate": {"f1": 0.5}}, "test"), one) == {"f1": 0.5}
