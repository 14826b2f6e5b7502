"""The verdict: what passes, and everything that must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from include.glue import TASKS
from tasks.gate.verdict import Evidence, judge
from tasks.intervals import wilson

SST2, COLA, STSB = TASKS["SST-2"], TASKS["CoLA"], TASKS["STS-B"]


def evidence(**changes: Any) -> Evidence:
    """100 rows, 90 right."""
    labels = np.repeat([0, 1], 50)
    predicted = np.where(np.arange(100) % 10 == 0, 1 - labels, labels)
    slices = {"length:short": {"rows": 30, "metric": "accuracy", "accuracy": 0.95}}
    summary = {"rows": 100, "metrics": {"accuracy": 0.9, "f1": 0.9, "matthews": 0.8}, "slices": slices}
    return Evidence(summary | changes, labels, predicted)


def test_passes_with_every_number_it_used() -> None:
    verdict = judge(SST2, {"accuracy": 0.9}, {"length:short": 0.95}, evidence(), 100)
    assert verdict.passed
    found = verdict.as_json()
    assert found["rows"] == {"expected": 100, "measured": 100, "predictions": 100}
    assert found["checks"] == [
        {
            "key": "gate.accuracy", "metric": "accuracy", "slice": "", "value": 0.9, "threshold": 0.9,
            "interval": wilson(90, 100), "reason": "", "passed": True,
        },
        {
            "key": 'gate.slices["length:short"]', "metric": "accuracy", "slice": "length:short", "value": 0.95,
            "threshold": 0.95, "interval": None, "reason": "", "passed": True,
        },
    ]  # fmt: skip


def test_a_bootstrap_interval_beside_matthews() -> None:
    (check,) = judge(COLA, {"matthews": 0.4551}, {}, evidence(), 100).checks
    assert check.interval is not None
    assert check.interval[0] < 0.8 < check.interval[1]


def test_below_says_by_how_much_and_whether_it_is_chance() -> None:
    near = judge(SST2, {"accuracy": 0.927}, {}, evidence(), 100)
    assert near.reasons == [
        "accuracy 0.9000 is 0.0270 below gate.accuracy = 0.927 (95 % interval 0.8256 to 0.9448, "
        "which holds the threshold: the miss is within chance)"
    ]
    far = judge(SST2, {"accuracy": 0.99}, {}, evidence(), 100)
    assert far.reasons[0].endswith("(95 % interval 0.8256 to 0.9448)")


def test_the_threshold_itself_is_enough_and_a_hair_below_is_not() -> None:
    hair = evidence(metrics={"accuracy": 0.9 - 1e-9})
    assert judge(SST2, {"accuracy": 0.9}, {}, evidence(), 100).passed
    assert not judge(SST2, {"accuracy": 0.9}, {}, hair, 100).passed


@pytest.mark.parametrize(
    "metrics",
    [{}, {"accuracy": None}, {"accuracy": float("nan")}, {"accuracy": float("inf")}, {"accuracy": "0.99"},
     {"accuracy": True}],
    ids=["missing", "null", "NaN", "infinite", "text", "boolean"],
)  # fmt: skip
def test_no_usable_metric_fails(metrics: dict[str, Any]) -> None:
    verdict = judge(SST2, {"accuracy": 0.5}, {}, evidence(metrics=metrics), 100)
    assert not verdict.passed
    assert "accuracy is missing or undefined" in verdict.reasons[0]
    assert verdict.as_json()["checks"][0]["value"] is None


def test_no_metrics_at_all_fails() -> None:
    assert not judge(SST2, {"accuracy": -1}, {}, Evidence({}, np.array([1]), np.array([1])), 1).passed


def test_a_correlation_that_is_undefined_fails() -> None:
    flat = Evidence({"rows": 3, "metrics": {"pearson": None}}, np.array([1.0, 2.0, 3.0]), np.full(3, 2.0))
    assert not judge(STSB, {"pearson": -1.0}, {}, flat, 3).passed


@pytest.mark.parametrize(
    ("measured", "expected"), [(100, 101), (99, 100), (100, None), (None, 100), (0, 0)],
    ids=["rows lost", "metrics of fewer rows", "expectation unknown", "count missing", "no rows"],
)  # fmt: skip
def test_a_wrong_number_of_rows_fails(measured: int | None, expected: int | None) -> None:
    verdict = judge(SST2, {"accuracy": 0.5}, {}, evidence(rows=measured), expected)
    assert not verdict.passed
    assert "rows" in verdict.reasons[0]


def test_no_threshold_fails_and_says_which_to_set() -> None:
    verdict = judge(TASKS["QNLI"], {}, {}, evidence(), 100)
    assert verdict.reasons == ["nothing to hold QNLI against: set gate.accuracy, the lowest accuracy you accept"]


def test_an_unknown_slice_fails_and_lists_the_known() -> None:
    verdict = judge(SST2, {"accuracy": 0.5}, {"length:tiny": 0.1}, evidence(), 100)
    assert verdict.reasons == ['there is no slice length:tiny: gate.slices["length:tiny"] can name length:short']


@pytest.mark.parametrize("entry", [{"rows": 3, "metric": "accuracy", "accuracy": None}, {"rows": 3, "accuracy": 1.0}])
def test_a_slice_without_its_metric_fails(entry: dict[str, Any]) -> None:
    assert not judge(SST2, {"accuracy": 0.5}, {"x": 0.1}, evidence(slices={"x": entry}), 100).passed


def test_a_slice_below_its_floor_fails() -> None:
    verdict = judge(SST2, {"accuracy": 0.5}, {"length:short": 0.96}, evidence(), 100)
    assert verdict.reasons == ['accuracy on length:short 0.9500 is 0.0100 below gate.slices["length:short"] = 0.96']
