"""The content of study.json: one row per configuration with means over its seeds, and a reference row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from include.ablations import CONFIGURATIONS, TABLE_5
from tasks.reporting.figures import mean, metric_of
from tasks.reporting.papers import METHODS, TECHNIQUES
from tasks.scoring.paired import compare_seeds, read_predictions
from tasks.stages.studies.study.arms import Arm, by_configuration

BASE = TABLE_5[0]
#: The costs that are compared: values of training.json, and "wire", the bytes that rank 0 receives per step.
COSTS = ("steps", "rows_per_second", "memory", "wire", "seconds")

Row = dict[str, Any]


def summarize(study: str, arms: list[Arm], warnings: list[str]) -> dict[str, Any]:
    """Return the content of study.json.

    A figure of a row is the mean over its seeds. `relative` compares it with the reference row: the metric as a
    difference, and costs as relative changes (0.1 is ten percent more). `difference` is that of the metric with the
    paired test over dev rows and seeds; None for the reference, or if the arms were not scored on the same rows.
    """
    metric = arms[0].summary["metric"]
    groups = dict(by_configuration(arms, list(CONFIGURATIONS)))
    rows = [_row(name, group, metric) for name, group in groups.items()]
    reference = next((row for row in rows if row["configuration"] == BASE), rows[0])
    for row in rows:
        row["relative"] = _relative(row, reference)
        other = None if row is reference else groups[reference["configuration"]]
        row["difference"] = other and _difference(groups[row["configuration"]], other)
    return {
        "study": study,
        "task": arms[0].metadata.task,
        "metric": metric,
        "reference": reference["configuration"],
        "rows": rows,
        "table_5": _table_5(rows),
        "arms": [_arm(arm) for arm in arms],
        "warnings": warnings,
    }


def _row(name: str, arms: list[Arm], metric: str) -> Row:
    return {
        "configuration": name,
        "about": CONFIGURATIONS[name].about if name in CONFIGURATIONS else "",
        "seeds": [arm.metadata.seed for arm in arms],
        "values": [arm.summary["metrics"].get(metric) for arm in arms],
        **metric_of([arm.summary for arm in arms], metric),
        **{cost: mean(_cost(arm.training, cost) for arm in arms) for cost in COSTS},
        "papers": TECHNIQUES.get(name, ""),
    }


def _difference(arms: list[Arm], others: list[Arm]) -> dict[str, Any] | None:
    """Compare the metric of arms with that of others, by the dev rows that all were scored on."""
    sides = [
        [read_predictions(arm.predictions) for arm in side if arm.predictions.is_file()] for side in (arms, others)
    ]
    if [len(side) for side in sides] != [len(arms), len(others)]:
        return None
    rows, labels, _ = sides[0][0]
    if not all(np.array_equal(rows, each) for side in sides for each, *_ in side):
        return None
    found = compare_seeds(arms[0].task, labels, *([predicted for *_, predicted in side] for side in sides))
    return {"value": found.difference, "interval": found.interval, "p": found.p}


def _cost(training: Mapping[str, Any], cost: str) -> float | None:
    if cost != "wire":
        return training.get(cost)
    sent, steps = training.get("bytes", {}).get("all"), training.get("steps")
    return sent / steps if sent is not None and steps else None


def _relative(row: Row, reference: Row) -> dict[str, float | None]:
    metric = None if None in (row["metric"], reference["metric"]) else row["metric"] - reference["metric"]
    measured = [cost for cost in COSTS if row[cost] is not None and reference[cost]]
    return {"metric": metric, **dict.fromkeys(COSTS), **{cost: row[cost] / reference[cost] - 1 for cost in measured}}


def _table_5(rows: list[Row]) -> list[dict[str, Any]]:
    """Return the paper's claims with our rows for its five configurations; empty if the study has none of them."""
    ours = {row["configuration"]: row for row in rows}
    if not ours.keys() & METHODS.keys():
        return []
    return [{"configuration": name, "paper": row._asdict(), "ours": ours.get(name)} for name, row in METHODS.items()]


def _arm(arm: Arm) -> dict[str, Any]:
    """Return the provenance of a row's figures: the arm, its artifacts, its own figures and its machine."""
    machine = {name: arm.training.get(name) for name in ("device", "ranks", "threads", "precision")}
    value = arm.summary["metrics"].get(arm.summary["metric"])
    costs = {cost: _cost(arm.training, cost) for cost in COSTS}
    return {**arm.metadata.model_dump(mode="json"), **arm.keys, "metric": value, **costs, **machine}
