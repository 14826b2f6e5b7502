"""The verdict: what passes, and everything that must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from include.glue import TASKS
from include.named_experiments import build
from tasks.scoring.intervals import of_share
from tasks.scoring.metrics import all_metrics
from tasks.scoring.verdict import Evidence, Verdict, judge

SST2, COLA, STSB, QNLI = "SST-2", "CoLA", "STS-B", "QNLI"


def judged(task: str, thresholds: dict[str, float], floors: dict[str, float], found: Evidence, rows: Any) -> Verdict:
    """The verdict under an experiment with this gate."""
    gate = {**thresholds, "slices": floors}
    return judge(build({"data": {"task": task, "source": "glue", "path": "glue"}, "gate": gate}, "test"), found, rows)


def evidence(**changes: Any) -> Evidence:
    """100 rows, 90 right."""
    labels = np.repeat([0, 1], 50)
    predicted = np.where(np.arange(100) % 10 == 0, 1 - labels, labels)
    slices = {"length:short": {"rows": 30, "metric": "accuracy", "accuracy": 0.95}}
    summary = {"rows": 100, "metrics": {"accuracy": 0.9, "f1": 0.9, "matthews": 0.8}, "slices": slices}
    return Evidence(summary | changes, labels, predicted)


def test_passes_with_every_number_it_used() -> None:
    verdict = judged(SST2, {"accuracy": 0.9}, {"length:short": 0.95}, evidence(), 100)
    assert verdict.passed
    found = verdict.as_json()
    assert found["rows"] == {"expected": 100, "measured": 100, "predictions": 100}
    assert found["checks"] == [
        {
            "key": "gate.accuracy", "metric": "accuracy", "slice": "", "value": 0.9, "threshold": 0.9,
            "interval": of_share(90, 100), "baseline": 0.5, "reason": "", "passed": True, "bound": "at least",
        },
        {
            "key": 'gate.slices["length:short"]', "metric": "accuracy", "slice": "length:short", "value": 0.95,
            "threshold": 0.95, "interval": None, "baseline": None, "reason": "", "passed": True,
            "bound": "at least",
        },
    ]  # fmt: skip


def test_a_bootstrap_interval_beside_matthews() -> None:
    (check,) = judged(COLA, {"matthews": 0.4551}, {}, evidence(), 100).checks
    assert check.interval is not None
    assert check.interval[0] < 0.8 < check.interval[1]


def test_below_says_by_how_much_and_whether_it_is_chance() -> None:
    near = judged(SST2, {"accuracy": 0.927}, {}, evidence(), 100)
    assert near.reasons == [
        "accuracy 0.9000 is 0.0270 below gate.accuracy = 0.927 (95 % interval 0.8256 to 0.9448, "
        "which includes the threshold: the miss is within chance)"
    ]
    far = judged(SST2, {"accuracy": 0.99}, {}, evidence(), 100)
    assert far.reasons[0].endswith("(95 % interval 0.8256 to 0.9448)")


def test_the_threshold_itself_is_enough_and_a_hair_below_is_not() -> None:
    hair = evidence(metrics={"accuracy": 0.9 - 1e-9})
    assert judged(SST2, {"accuracy": 0.9}, {}, evidence(), 100).passed
    assert not judged(SST2, {"accuracy": 0.9}, {}, hair, 100).passed


@pytest.mark.parametrize(
    "metrics",
    [{}, {"accuracy": None}, {"accuracy": float("nan")}, {"accuracy": float("inf")}, {"accuracy": "0.99"},
     {"accuracy": True}],
    ids=["missing", "null", "NaN", "infinite", "text", "boolean"],
)  # fmt: skip
def test_no_usable_metric_fails(metrics: dict[str, Any]) -> None:
    verdict = judged(SST2, {"accuracy": 0.5}, {}, evidence(metrics=metrics), 100)
    assert not verdict.passed
    assert "accuracy is missing or undefined" in verdict.reasons[0]
    assert verdict.as_json()["checks"][0]["value"] is None


def test_no_metrics_at_all_fails() -> None:
    assert not judged(SST2, {"accuracy": -1}, {}, Evidence({}, np.array([1]), np.array([1])), 1).passed


def test_a_correlation_that_is_undefined_fails() -> None:
    flat = Evidence({"rows": 3, "metrics": {"pearson": None}}, np.array([1.0, 2.0, 3.0]), np.full(3, 2.0))
    assert not judged(STSB, {"pearson": -1.0}, {}, flat, 3).passed


@pytest.mark.parametrize(
    ("measured", "expected"), [(100, 101), (99, 100), (100, None), (None, 100), (0, 0)],
    ids=["rows lost", "metrics of fewer rows", "expectation unknown", "count missing", "no rows"],
)  # fmt: skip
def test_a_wrong_number_of_rows_fails(measured: int | None, expected: int | None) -> None:
    verdict = judged(SST2, {"accuracy": 0.5}, {}, evidence(rows=measured), expected)
    assert not verdict.passed
    assert "rows" in verdict.reasons[0]


def test_no_threshold_fails_and_says_which_to_set() -> None:
    verdict = judged(QNLI, {}, {}, evidence(), 100)
    assert verdict.reasons == ["there is no threshold for QNLI: set gate.accuracy, the lowest acceptable accuracy"]


def test_a_slice_that_was_not_measured_fails_and_lists_those_that_were() -> None:
    verdict = judged(SST2, {"accuracy": 0.5}, {"length:long": 0.1}, evidence(), 100)
    assert verdict.reasons == ['gate.slices["length:long"] names an unknown slice: the slices are length:short']


@pytest.mark.parametrize("entry", [{"rows": 3, "metric": "accuracy", "accuracy": None}, {"rows": 3, "accuracy": 1.0}])
def test_a_slice_without_its_metric_fails(entry: dict[str, Any]) -> None:
    found = evidence(slices={"length:long": entry})
    assert not judged(SST2, {"accuracy": 0.5}, {"length:long": 0.1}, found, 100).passed


def test_a_slice_below_its_floor_fails() -> None:
    verdict = judged(SST2, {"accuracy": 0.5}, {"length:short": 0.96}, evidence(), 100)
    assert verdict.reasons == ['accuracy on length:short 0.9500 is 0.0100 below gate.slices["length:short"] = 0.96']


def calibrated(most: float, **calibration: Any) -> Verdict:
    """The verdict on an accurate model with this calibration, which must have an error of at most `most`."""
    found = evidence(calibration=calibration) if calibration else evidence()
    gate = {"accuracy": 0.5, "calibration_error": most}
    return judge(build({"data": {"task": SST2, "source": "glue", "path": "glue"}, "gate": gate}, "test"), found, 100)


def test_a_calibration_error_is_limited_from_above() -> None:
    at = calibrated(0.04, ece=0.04, interval=[0.01, 0.05])
    assert at.passed and [check.bound for check in at.checks] == ["at least", "at most"]
    assert at.as_json()["checks"][1]["baseline"] is None
    near = calibrated(0.03, ece=0.04, interval=[0.01, 0.05])
    assert near.reasons == [
        "calibration_error 0.0400 is 0.0100 above gate.calibration_error = 0.03 (95 % interval 0.0100 to 0.0500, "
        "which includes the threshold: the miss is within chance)"
    ]
    far = calibrated(0.001, ece=0.04, interval=[0.01, 0.05])
    assert far.reasons[0].endswith("(95 % interval 0.0100 to 0.0500)")
    missing = calibrated(0.03)
    assert "calibration_error is missing or undefined" in missing.reasons[0]
    assert missing.reasons[0].endswith("but gate.calibration_error requires at most 0.03")


def always(label: int, labels: list[int], **gate: Any) -> Verdict:
    """The verdict on a model that says one class, whatever it reads."""
    predicted = np.full(len(labels), label)
    metrics = all_metrics(TASKS["SST-2"], np.array(labels), np.eye(2)[predicted])
    found = Evidence({"rows": len(labels), "metrics": metrics}, np.array(labels), predicted)
    experiment = build({"data": {"task": "SST-2", "source": "glue", "path": "glue"}, "gate": gate}, "test")
    return judge(experiment, found, len(labels))


RARE = [0] * 99 + [1]


def test_always_the_majority_does_not_pass() -> None:
    verdict = always(0, RARE, accuracy=0.9)
    assert verdict.reasons == [
        "accuracy 0.9900 does not beat its baseline 0.9900, which a constant answer reaches "
        "(set gate.beat_baseline: false to accept this)"
    ]
    assert verdict.checks[0].baseline == 0.99


@pytest.mark.parametrize("labels", [RARE, [0] + [1] * 9, [0, 1] * 5], ids=["99 to 1", "1 to 9", "even"])
@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews"])
def test_no_constant_passes_by_any_metric(metric: str, label: int, labels: list[int]) -> None:
    assert not always(label, labels, **{metric: -1}).passed
    assert always(label, labels, **{metric: -1}, beat_baseline=False).passed


def test_one_row_better_than_the_majority_passes() -> None:
    labels, predicted = np.array(RARE), np.array(RARE)
    metrics = all_metrics(TASKS["SST-2"], labels, np.eye(2)[predicted])
    assert judged(
        SST2, {"accuracy": 0.9}, {}, Evidence({"rows": 100, "metrics": metrics}, labels, predicted), 100
    ).passed


def test_a_correlation_below_zero_passes_no_gate() -> None:
    scores = np.array([1.0, 2.0, 3.0])
    reverse = Evidence({"rows": 3, "metrics": {"pearson": -1.0}}, scores, scores[::-1])
    assert judged(STSB, {"pearson": -1.0}, {}, reverse, 3).reasons[0].startswith("pearson -1.0000 does not beat")


def test_a_slice_has_no_baseline() -> None:
    """Every row of a label has that label: a constant is always right there."""
    found = evidence(slices={"label:positive": {"rows": 50, "metric": "recall", "recall": 0.9}})
    assert judged(SST2, {"accuracy": 0.5}, {"label:positive": 0.8}, found, 100).passed


TEACHER = {
    "metric": "accuracy", "model": 0.9, "teacher": 0.91, "difference": -0.01, "interval": [-0.03, 0.01],
    "rows_per_second": {"times": 2.5},
}  # fmt: skip


@pytest.mark.parametrize(("gate", "teacher", "reasons"), [
    ({"teacher_margin": 0.03, "teacher_speed": 2.5}, TEACHER, []),
    ({}, None, []),
    (
        {"teacher_margin": 0.02},
        TEACHER,
        [
            "accuracy 0.9000 may be as much as 0.0300 below the teacher's 0.9100, which is more than "
            "gate.teacher_margin = 0.02 (95 % interval of the difference -0.0300 to 0.0100)"
        ],
    ),
    ({"teacher_margin": 0.02}, TEACHER | {"interval": None}, ["accuracy minus the teacher's is missing or undefined"]),
    ({"teacher_margin": 0.02}, None, ["metric minus the teacher's is missing or undefined"]),
    ({"teacher_speed": 3}, TEACHER, ["rows per second, times the teacher's, 2.5000 is 0.5000 below"]),
    ({"teacher_speed": 3}, None, ["rows per second, times the teacher's, is missing"]),
])  # fmt: skip
def test_a_model_is_held_against_its_teacher(gate: dict[str, Any], teacher: Any, reasons: list[str]) -> None:
    values = {"data": {"task": SST2, "source": "glue", "path": "glue"}, "model": {"teacher": "large"}}
    experiment = build({**values, "gate": {"accuracy": 0.9, **gate}}, "test")
    verdict = judge(experiment, evidence(teacher=teacher), 100)
    assert len(verdict.reasons) == len(reasons) and len(verdict.checks) == 1 + len(gate)
    for found, expected in zip(verdict.reasons, reasons, strict=True):
        assert found.startswith(expected)
