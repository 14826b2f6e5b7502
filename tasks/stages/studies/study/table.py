"""The content of study.json: one row per configuration with means over its seeds, and a reference row.

A figure that is missing for one seed is None, because a mean over fewer seeds could not be compared with the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from include.ablations import CONFIGURATIONS, TABLE_5
from tasks.scoring.intervals import over_seeds
from tasks.stages.studies.study.arms import Arm, by_configuration
from tasks.stages.studies.study.paper import CLAIMS

BASE = TABLE_5[0]
#: The costs that are compared: values of training.json, and "wire", the bytes that rank 0 receives per step.
COSTS = ("rows_per_second", "memory", "wire", "seconds")

Row = dict[str, Any]


def summarize(study: str, arms: list[Arm], warnings: list[str]) -> dict[str, Any]:
    """Return the content of study.json.

    Each row has the configuration, its description, its seeds, the mean of the metric, a 95 % interval, what the
    interval is computed over ("seeds" or "dev rows"), and the COSTS: training rows per second, rank 0's peak memory in
    bytes, bytes per step on the wire, and the seconds of training. `relative` compares them with the reference row: the
    metric as a difference, and costs as relative changes (0.1 is ten percent more).

    Args:
        study: The name of the study.
        arms: The arms of the study.
        warnings: One line per run that cannot be read.
    """
    metric = arms[0].summary["metric"]
    rows = [_row(name, group, metric) for name, group in by_configuration(arms, list(CONFIGURATIONS))]
    reference = next((row for row in rows if row["configuration"] == BASE), rows[0])
    for row in rows:
        row["relative"] = _relative(row, reference)
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
    values = [arm.summary["metrics"].get(metric) for arm in arms]
    one = len(arms) == 1
    interval = arms[0].summary["interval"] if one else None if None in values else over_seeds(values)
    return {
        "configuration": name,
        "about": CONFIGURATIONS[name].about if name in CONFIGURATIONS else "",
        "seeds": [arm.metadata.seed for arm in arms],
        "metric": _mean(values),
        "interval": interval,
        "interval_over": "dev rows" if one else "seeds",
        **{cost: _mean([_cost(arm.training, cost) for arm in arms]) for cost in COSTS},
    }


def _cost(training: Mapping[str, Any], cost: str) -> float | None:
    if cost != "wire":
        return training.get(cost)
    sent, steps = training.get("bytes", {}).get("all"), training.get("steps")
    return sent / steps if sent is not None and steps else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _relative(row: Row, reference: Row) -> dict[str, float | None]:
    relative = {"metric": _over(row["metric"], reference["metric"], share=False)}
    return relative | {cost: _over(row[cost], reference[cost], share=True) for cost in COSTS}


def _over(value: float | None, reference: float | None, share: bool) -> float | None:
    if value is None or reference is None or (share and not reference):
        return None
    return value / reference - 1 if share else value - reference


def _table_5(rows: list[Row]) -> list[dict[str, Any]]:
    """Return the paper's claims with our rows for its five configurations; empty if the study has none of them."""
    ours = {row["configuration"]: row for row in rows if row["configuration"] in CLAIMS}
    return (
        [{"configuration": name, "paper": claim._asdict(), "ours": ours.get(name)} for name, claim in CLAIMS.items()]
        if ours
        else []
    )


def _arm(arm: Arm) -> dict[str, Any]:
    """Return the provenance of a row's figures: the arm, its artifacts, its own figures and its machine."""
    machine = {name: arm.training.get(name) for name in ("device", "ranks", "threads", "precision")}
    value = arm.summary["metrics"].get(arm.summary["metric"])
    costs = {cost: _cost(arm.training, cost) for cost in COSTS}
    return {**arm.metadata.model_dump(mode="json"), **arm.keys, "metric": value, **costs, **machine}
