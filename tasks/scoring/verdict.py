"""The gate's verdict: every number that was compared, and a reason for each that was not good enough.

The stage gate decides by it, and evaluate's report shows it. It fails closed: no threshold, a metric that is missing
or undefined, a slice that does not exist and a wrong number of rows are failures. So is a metric of the whole split
that does not beat its baseline (tasks/scoring/baseline.py), unless the experiment says otherwise. Slices have no
baseline: on the rows of one label a constant answer is either always right or always wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from include.artifacts import Artifact
from include.experiment import Experiment
from include.glue import Task
from tasks.scoring.baseline import baseline
from tasks.scoring.intervals import Interval, interval
from tasks.scoring.metrics import Array


@dataclass(frozen=True)
class Check:
    """One value held against its threshold.

    Attributes:
        key: the experiment's field that sets the threshold, "gate.accuracy".
        metric: what was measured.
        slice: on which rows; "" for the whole dev split.
        value: what was found; None where it is missing or undefined.
        threshold: the lowest acceptable value.
        interval: the value's 95 % interval.
        baseline: what the same answer for every row reaches; None on slices.
        reason: why it failed; "" when it passed.
    """

    key: str
    metric: str
    slice: str
    value: float | None
    threshold: float
    interval: Interval | None
    baseline: float | None
    reason: str


@dataclass(frozen=True)
class Verdict:
    """What the gate decided. It passed when there is no reason against it."""

    task: str
    rows: dict[str, int | None]
    checks: list[Check]
    reasons: list[str]

    @property
    def passed(self) -> bool:
        """Whether the model may go on."""
        return not self.reasons

    def as_json(self) -> dict[str, Any]:
        """The same for verdict.json."""
        checks = [{**asdict(check), "passed": not check.reason} for check in self.checks]
        return {"passed": self.passed, "task": self.task, "rows": self.rows, "checks": checks, "reasons": self.reasons}


@dataclass(frozen=True)
class Evidence:
    """What evaluate measured.

    Attributes:
        summary: its metrics.json.
        labels: of its predictions.parquet, [n].
        predicted: of the same, [n].
    """

    summary: Mapping[str, Any]
    labels: Array
    predicted: Array


def judge(experiment: Experiment, evidence: Evidence, expected_rows: int | None) -> Verdict:
    """Hold the evidence against the experiment's thresholds, the baselines, and the floors of slices.

    Args:
        experiment: whose gate it is.
        evidence: what was measured on the dev split.
        expected_rows: rows that the dev split must have; None: nobody knows.
    """
    task, gate, thresholds = experiment.task, experiment.gate, experiment.thresholds
    rows = {
        "expected": expected_rows,
        "measured": evidence.summary.get("rows"),
        "predictions": len(evidence.labels),
    }
    metrics = [_metric(task, metric, least, gate.beat_baseline, evidence) for metric, least in thresholds.items()]
    checks = [*metrics, *(_slice(name, least, evidence) for name, least in gate.slices.items())]
    reasons = [*_rows(rows), *_thresholds(task, thresholds), *(check.reason for check in checks if check.reason)]
    return Verdict(task.name, rows, checks, reasons)


def expected_rows(experiment: Experiment, inputs: Mapping[str, Artifact]) -> int | None:
    """Rows that the dev split must have: as validate passed them, or as preprocess cut them anew."""
    source = inputs["preprocess" if experiment.preprocessing.resplit else "validate"]
    rows: int | None = source.manifest.result.get("rows", {}).get("dev")
    return rows


def _rows(rows: Mapping[str, int | None]) -> Iterator[str]:
    if rows["expected"] is None or rows["expected"] < 1 or len(set(rows.values())) > 1:
        found = f"{rows['measured']} were measured and {rows['predictions']} lie in predictions.parquet"
        yield f"the dev split has {rows['expected']} rows, but {found}: run the stages from validate on again"


def _thresholds(task: Task, thresholds: Mapping[str, float]) -> Iterator[str]:
    if not thresholds:
        yield f"nothing to hold {task.name} against: set gate.{task.metric}, the lowest {task.metric} you accept"


def _metric(task: Task, metric: str, threshold: float, beat_baseline: bool, evidence: Evidence) -> Check:
    key, value = f"gate.{metric}", _number(evidence.summary.get("metrics", {}).get(metric))
    found = None if value is None else interval(task, metric, evidence.labels, evidence.predicted)
    constant = baseline(task, evidence.labels).get(metric)
    reason = _reason(metric, value, threshold, found, key)
    if beat_baseline and not reason:
        reason = _below_baseline(metric, value, constant)
    return Check(key, metric, "", value, threshold, found, constant, reason)


def _slice(name: str, threshold: float, evidence: Evidence) -> Check:
    key, parts = f'gate.slices["{name}"]', evidence.summary.get("slices", {})
    if name not in parts:
        reason = f"there is no slice {name}: {key} can name {', '.join(sorted(parts)) or 'none'}"
        return Check(key, "", name, None, threshold, None, None, reason)
    metric = str(parts[name].get("metric"))
    value = _number(parts[name].get(metric))
    between = parts[name].get("interval")
    found = None if value is None or between is None else (float(between[0]), float(between[1]))
    reason = _reason(f"{metric} on {name}", value, threshold, found, key)
    return Check(key, metric, name, value, threshold, found, None, reason)


def _number(value: Any) -> float | None:
    """The value when it is a finite number, else None."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def _reason(what: str, value: float | None, threshold: float, found: Interval | None, key: str) -> str:
    """Why a value fails, by how much, and whether so few rows can tell; "" when it passes."""
    if value is None:
        return f"{what} is missing or undefined (all predictions equal?), and {key} wants {threshold}"
    if value >= threshold:
        return ""
    reason = f"{what} {value:.4f} is {threshold - value:.4f} below {key} = {threshold}"
    if found is None:
        return reason
    reason += f" (95 % interval {found[0]:.4f} to {found[1]:.4f}"
    return f"{reason}, which holds the threshold: the miss is within chance)" if found[1] >= threshold else f"{reason})"


def _below_baseline(metric: str, value: float | None, constant: float | None) -> str:
    """Why a value that reaches its threshold fails all the same; "" when it beats the constant answer."""
    if value is None or constant is None or value > constant:
        return ""
    return (
        f"{metric} {value:.4f} does not beat its baseline {constant:.4f}, which the same answer for every row reaches "
        "(gate.beat_baseline: false accepts that)"
    )
