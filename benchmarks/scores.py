"""The metric of the dev split after some steps of training, and differences that are paired by seed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from scipy import stats

from benchmarks.workload import BATCH, Workload
from tasks.launching.launch import launch


def dev_metric(workload: Workload, output: Path, steps: int, seed: int, *overrides: str) -> float:
    """Train for some steps and return the main metric of the dev split.

    Args:
        workload: what is trained on.
        output: the folder that the training writes into.
        steps: number of steps, of BATCH rows each.
        seed: the seed of the training.
        *overrides: other values of the experiment, as section.field=value.
    """
    epochs = steps * BATCH / workload.rows
    told = (f"training.seed={seed}", f"training.epochs={epochs}", "training.evaluations=1", "training.patience=0")
    job = workload.job(output, *overrides, *told)
    launch(job)
    lines = (job.output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metric: float = json.loads(lines[-1])[job.experiment.task.metric]
    return metric


def paired_difference(values: Sequence[float], base: Sequence[float]) -> str:
    """Return the mean of the differences and, if they vary, its interval at 95 % by Student's t."""
    differences = [value - other for value, other in zip(values, base, strict=True)]
    mean = statistics.mean(differences)
    if len(set(differences)) == 1:
        return f"{mean:+.4f}"
    error = statistics.stdev(differences) / len(differences) ** 0.5
    low, high = stats.t.interval(0.95, len(differences) - 1, mean, error)
    return f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"
