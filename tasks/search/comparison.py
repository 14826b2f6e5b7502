"""The winner of a search beside the default: both trained with seeds that the search has not seen.

The best of many trials is partly the luckiest one, so neither its metric nor its seed says how good its settings are.
That the same dev rows have chosen it is not undone: with many trials and few rows, it gains less on other rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from include.experiment import Experiment
from include.paired import LEVEL
from include.runs import Run
from include.stages import BadInput
from tasks.reporting.page import figure
from tasks.scoring.paired import Comparison, compare_seeds, read_predictions
from tasks.scoring.predictions import Array
from tasks.scoring.verdict import PREDICTIONS
from tasks.search.trial import advance, with_values
from tasks.search.worker import log

_NOTHING = Comparison("", 0, None, None)


@dataclass(frozen=True)
class Side:
    """Models of the same settings: the names of their runs, their metrics, and their predictions, by seed."""

    runs: list[str]
    values: list[float | None]
    predictions: list[tuple[Array, Array, Array]]  # rows, labels, and predictions of each

    def as_json(self) -> dict[str, Any]:
        """Return what search.json says of it."""
        known = [value for value in self.values if value is not None]
        mean = sum(known) / len(known) if 0 < len(known) == len(self.values) else None
        return {"runs": self.runs, "values": self.values, "mean": mean}


def compared(summary: Mapping[str, Any], experiment: Experiment, data: Run) -> dict[str, Any]:
    """Return the comparison of search.json, after the trainings that it needs."""
    best, seed = summary["trials"][summary["best"]], experiment.training.seed
    seeds = [seed + more for more in range(1, experiment.search.seeds + 1)]
    if best["default"]:  # there is nothing to compare, and so nothing to train
        return _kept(f"the default settings are the best of {len(summary['trials'])} that were tried", experiment)
    try:
        winner = _trained("winner", best["values"], seeds, summary, experiment, data)
    except BadInput as error:  # such as a training that diverges, of which a trial would have failed alone
        why = " ".join(str(error).split())
        return _kept(f"a training with the winner's settings and another seed has failed: {why}", experiment)
    default = _trained("default", {}, seeds, summary, experiment, data)
    found = _paired(experiment, winner, default)
    recommended, reason = _decided(summary["metric"], found, len(seeds))
    chosen = with_values(experiment, best["values"] if recommended == "winner" else {})
    return _said(seeds, {"winner": winner, "default": default}, found, recommended, reason, chosen)


def _kept(reason: str, experiment: Experiment) -> dict[str, Any]:
    """Return a comparison that keeps the default without measurements."""
    return _said([], dict.fromkeys(("winner", "default"), Side([], [], [])), _NOTHING, "default", reason, experiment)


def _said(
    seeds: list[int], sides: Mapping[str, Side], found: Comparison, recommended: str, reason: str, chosen: Experiment
) -> dict[str, Any]:
    return {
        "seeds": seeds,
        **{name: side.as_json() for name, side in sides.items()},
        **{name: asdict(found)[name] for name in ("rows", "difference", "interval", "p")},
        "recommended": recommended,
        "reason": reason,
        "experiment": chosen.model_dump(mode="json", exclude_defaults=True, exclude={"search"}),
    }


def _trained(
    name: str, values: dict[str, Any], seeds: list[int], summary: Mapping[str, Any], experiment: Experiment, data: Run
) -> Side:
    runs, metrics, predictions = [], [], []
    for seed in seeds:
        what = f"trial-{summary['best']:04d}" if name == "winner" else name
        run = Run(data.folder.with_name(f"{summary['search']}-{what}-seed-{seed}"), data.store.full_check)
        reached = advance(run, data, summary["search"], with_values(experiment, {**values, "training.seed": seed}))
        runs.append(run.folder.name)
        metrics.append(reached.metrics[summary["metric"]])
        predictions.append(read_predictions(run.artifact("evaluate").path / PREDICTIONS))
        log.info("%s with seed %d: %s %s", name, seed, summary["metric"], figure(metrics[-1]))
    return Side(runs, metrics, predictions)


def _paired(experiment: Experiment, winner: Side, default: Side) -> Comparison:
    rows, labels, _ = default.predictions[0]
    if any(not np.array_equal(rows, one) for side in (winner, default) for one, _, _ in side.predictions):
        raise BadInput("winner and default were evaluated on different dev rows: search no field that changes these")
    models, defaults = ([predicted for _, _, predicted in side.predictions] for side in (winner, default))
    return compare_seeds(experiment.task, labels, models, defaults)


def _decided(metric: str, found: Comparison, seeds: int) -> tuple[str, str]:
    """Return what is recommended, and why."""
    if found.difference is None or found.interval is None or found.p is None:
        return "default", f"{metric} is undefined for one of the models"
    low, high = found.interval
    measured = (
        f"{metric} {figure(found.model)} with the winner's settings and {figure(found.champion)} with the default, "
        f"means of {seeds} seeds; difference {found.difference:+.4f}, 95 % interval {low:+.4f} to {high:+.4f}"
    )
    if seeds == 1:
        return "default", f"{measured}: one seed does not show how much is chance, so write search.seeds 3 or more"
    if low > 0 and found.p < 1 - LEVEL:
        return "winner", measured
    return "default", f"{measured}: no more than chance may do"
