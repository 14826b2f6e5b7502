"""The gate's verdict: every value that was compared with a threshold, and a reason for each failure.

The gate fails closed: a missing threshold (own tasks have one of 0, unless gate.beat_baseline is false), a missing or
undefined metric, an unknown slice and a wrong number of rows are failures. So is a metric of the whole split that does
not beat its baseline, unless gate.beat_baseline is false. Slices have no baseline, because on the rows of a single
label a constant answer is either always right or always wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq

from include.artifacts import Artifact
from include.experiment import Experiment
from include.fields.results import Gate
from include.glue import Task
from include.paired import Interval
from tasks.encoder.labels import from_column
from tasks.scoring.intervals import interval
from tasks.scoring.metrics import baseline
from tasks.scoring.predictions import Array

METRICS, PREDICTIONS = "metrics.json", "predictions.parquet"
Bound = Literal["at least", "at most"]


@dataclass(frozen=True)
class Check:
    """The comparison of one value with its threshold. What is missing or undefined is None."""

    key: str  # the experiment's field that sets the threshold, such as "gate.accuracy"
    metric: str
    slice: str  # "" for the whole dev split
    value: float | None
    threshold: float
    interval: Interval | None
    baseline: float | None  # the best value that a constant answer reaches; None for slices
    reason: str  # why the check failed; "" if it passed
    bound: Bound = "at least"  # how the value must compare with the threshold


@dataclass(frozen=True)
class Verdict:
    """The decision of the gate on the model of a task. The model passes if there are no reasons against it."""

    task: str
    rows: dict[str, int | None]  # the numbers that were expected, measured, and found in predictions.parquet
    checks: list[Check]
    reasons: list[str]

    @property
    def passed(self) -> bool:
        """Whether the model passes the gate."""
        return not self.reasons

    def as_json(self) -> dict[str, Any]:
        """Return the content of verdict.json."""
        checks = [{**asdict(check), "passed": not check.reason} for check in self.checks]
        return {"passed": self.passed, "task": self.task, "rows": self.rows, "checks": checks, "reasons": self.reasons}


@dataclass(frozen=True)
class Evidence:
    """The results of the stage evaluate: metrics.json, and labels and predictions, [n] or [n, labels]."""

    summary: Mapping[str, Any]
    labels: Array
    predicted: Array


def verdict_on(evaluated: Path, experiment: Experiment, inputs: Mapping[str, Artifact]) -> Verdict:
    """Judge the files of the stage evaluate, for its own report and for the gate."""
    summary = json.loads((evaluated / METRICS).read_text(encoding="utf-8"))
    table = pq.read_table(evaluated / PREDICTIONS, columns=["label", "prediction"])
    evidence = Evidence(summary, from_column(table["label"]), from_column(table["prediction"]))
    split = inputs["preprocess" if experiment.preprocessing.resplit else "validate"]
    return judge(experiment, evidence, split.manifest.result.get("rows", {}).get("dev"))


def judge(experiment: Experiment, evidence: Evidence, expected_rows: int | None) -> Verdict:
    """Compare the evidence with the experiment's thresholds and the baselines. No expected number of rows fails it."""
    task, gate, thresholds = experiment.task, experiment.gate, experiment.thresholds
    measured, predicted = evidence.summary.get("rows"), len(evidence.labels)
    reasons = []
    if not expected_rows or not expected_rows == measured == predicted:
        reasons.append(
            f"the dev split has {expected_rows} rows, but {measured} were measured and {predicted} are in "
            f"{PREDICTIONS}: run validate and all later stages again"
        )
    if not thresholds:
        reasons.append(
            f"there is no threshold for {task.name}: set gate.{task.metric}, the lowest acceptable {task.metric}"
        )
    metrics = [_metric(task, metric, least, gate.beat_baseline, evidence) for metric, least in thresholds.items()]
    checks = [*metrics, *(_slice(name, least, evidence) for name, least in gate.slices.items())]
    checks += _of_teacher(gate, evidence.summary.get("teacher") or {})
    if gate.calibration_error is not None:
        checks.append(_calibration(gate.calibration_error, evidence))
    reasons += [check.reason for check in checks if check.reason]
    rows = {"expected": expected_rows, "measured": measured, "predictions": predicted}
    return Verdict(task.name, rows, checks, reasons)


def _metric(task: Task, metric: str, threshold: float, beat_baseline: bool, evidence: Evidence) -> Check:
    key, value = f"gate.{metric}", _number(evidence.summary.get("metrics", {}).get(metric))
    found = None if value is None else interval(task, metric, evidence.labels, evidence.predicted)
    constant = baseline(task, evidence.labels).get(metric)
    reason = _reason(metric, value, threshold, found, key)
    if beat_baseline and not reason and value is not None and constant is not None and value <= constant:
        reason = (
            f"{metric} {value:.4f} does not beat its baseline {constant:.4f}, which a constant answer reaches "
            "(set gate.beat_baseline: false to accept this)"
        )
    return Check(key, metric, "", value, threshold, found, constant, reason)


def _slice(name: str, threshold: float, evidence: Evidence) -> Check:
    key, parts = f'gate.slices["{name}"]', evidence.summary.get("slices", {})
    if name not in parts:
        reason = f"{key} names an unknown slice: the slices are {', '.join(sorted(parts)) or 'none'}"
        return Check(key, "", name, None, threshold, None, None, reason)
    metric = str(parts[name].get("metric"))
    value = _number(parts[name].get(metric))
    between = parts[name].get("interval")
    found = None if value is None or between is None else (float(between[0]), float(between[1]))
    reason = _reason(f"{metric} on {name}", value, threshold, found, key)
    return Check(key, metric, name, value, threshold, found, None, reason)


def _of_teacher(gate: Gate, found: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the comparisons with the teacher that the gate asks for: of the metric, and of the rows per second."""
    if gate.teacher_margin is not None:
        key, margin = "gate.teacher_margin", gate.teacher_margin
        metric = f"{found.get('metric', 'metric')} minus the teacher's"
        value, bounds, reason = _number(found.get("difference")), found.get("interval"), ""
        between = None if value is None or bounds is None else (float(bounds[0]), float(bounds[1]))
        if between is None:
            reason = f"{metric} is missing or undefined, but {key} requires it"
        elif between[0] < -margin:
            reason = (
                f"{found['metric']} {found['model']:.4f} may be as much as {-between[0]:.4f} below the teacher's "
                f"{found['teacher']:.4f}, which is more than {key} = {margin} (95 % interval of the difference "
                f"{between[0]:.4f} to {between[1]:.4f})"
            )
        yield Check(key, metric, "", value, 0.0 - margin, between, None, reason)
    if gate.teacher_speed is not None:
        key, metric = "gate.teacher_speed", "rows per second, times the teacher's,"
        value = _number(found.get("rows_per_second", {}).get("times"))
        reason = _reason(metric, value, gate.teacher_speed, None, key)
        yield Check(key, metric.removesuffix(","), "", value, gate.teacher_speed, None, None, reason)


def _calibration(threshold: float, evidence: Evidence) -> Check:
    metric = "calibration_error"
    key, measured = f"gate.{metric}", evidence.summary.get("calibration") or {}
    value, between = _number(measured.get("ece")), measured.get("interval")
    found = None if value is None or between is None else (float(between[0]), float(between[1]))
    reason = _reason(metric, value, threshold, found, key, "at most")
    return Check(key, metric, "", value, threshold, found, None, reason, "at most")


def _number(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def _reason(
    what: str, value: float | None, threshold: float, found: Interval | None, key: str, bound: Bound = "at least"
) -> str:
    """Return why a value fails, by how much, and whether the miss is within chance; "" if it passes."""
    if value is None:
        needed = f"{key} requires {bound} {threshold}"
        return f"{what} is missing or undefined (perhaps all predictions are equal), but {needed}"
    missing, where = (threshold - value, "below") if bound == "at least" else (value - threshold, "above")
    if missing <= 0:
        return ""
    reason = f"{what} {value:.4f} is {missing:.4f} {where} {key} = {threshold}"
    if found is None:
        return reason
    chance = (
        "" if not found[0] <= threshold <= found[1] else ", which includes the threshold: the miss is within chance"
    )
    return f"{reason} (95 % interval {found[0]:.4f} to {found[1]:.4f}{chance})"
