"""The verdict: all comparisons, the costs of serving, and the reasons for which the challenger is refused."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from include.fields.retraining import Retraining
from tasks.inference.runner import Runner
from tasks.scoring import paired
from tasks.scoring.metrics import as_json
from tasks.scoring.paired import Comparison
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.slices import RECALL, slices_of
from tasks.stages.lifecycle.challenge.models import ScoredModel

ROWS, WARM_UP = 100, 10


@dataclass(frozen=True)
class Cost:
    """One cost of the challenger ("model") and the champion, its budget, and the reason if it exceeds that."""

    name: str
    unit: str
    model: float
    champion: float | None
    budget: float | None
    reason: str


def costs(models: Mapping[str, ScoredModel], options: Retraining) -> list[Cost]:
    """Measure latency and size of "model" and "champion", and compare the model's with their budgets."""
    sizes = {
        name: sum(file.stat().st_size for file in scored.folder.rglob("*") if file.is_file()) / 1e6
        for name, scored in models.items()
    }
    return [
        _cost("latency", "ms", milliseconds(models), options.max_latency),
        _cost("size", "MB", sizes, options.max_size),
    ]


def milliseconds(models: Mapping[str, ScoredModel]) -> dict[str, float]:
    """Return the median time from token ids to logits for a single text, on one CPU thread, in the served forms.

    A single thread is least affected by other processes. So that all models are, they take turns with each text.
    """
    rows = len(next(iter(models.values())).table.documents)
    taken: dict[str, list[float]] = {name: [] for name in models}
    runners = {name: Runner(scored.folder, scored.served) for name, scored in models.items()}
    for place, row in enumerate(np.resize(np.linspace(0, rows - 1, min(rows, ROWS)).astype(int), WARM_UP + ROWS)):
        for name, scored in models.items():
            started = time.perf_counter()
            runners[name].documents(scored.table, np.array([row]))
            if place >= WARM_UP:
                taken[name].append(1000 * (time.perf_counter() - started))
    return {name: statistics.median(times) for name, times in taken.items()}


def _cost(name: str, unit: str, values: Mapping[str, float], most: float) -> Cost:
    value, budget = values["model"], most or None
    over = budget is not None and value > budget
    reason = f"{name} {value:.2f} {unit} is more than retraining.max_{name} = {most:g} {unit}" if over else ""
    return Cost(name, unit, value, values.get("champion"), budget, reason)


@dataclass(frozen=True)
class MarginCheck:
    """A comparison on some rows with the margin that a field sets, and why the challenger is refused, if it is."""

    about: str
    key: str
    margin: float
    found: Comparison
    outcome: paired.Outcome
    reason: str


@dataclass(frozen=True)
class Verdict:
    """The decision of the challenge.

    Attributes:
        outcome: The outcome over all dev rows; "first" if there is no champion to compare with.
        champion: The content of champion.json.
        metrics: All metrics of "model" and "champion"; None where one is undefined, and for a missing champion.
        whole: The comparison over all dev rows; None if there is no champion.
        capacity: How many more or fewer texts the service answers, as a sentence; "" if the packages do not say.
    """

    outcome: paired.Outcome | Literal["first"]
    champion: Mapping[str, str]
    metric: str
    metrics: dict[str, dict[str, float | None] | None]
    whole: MarginCheck | None
    slices: dict[str, MarginCheck]
    costs: list[Cost]
    reasons: list[str]
    capacity: str

    @property
    def passed(self) -> bool:
        """Whether the challenger passes. An undecided challenger passes but is not promoted automatically."""
        return not self.reasons

    @property
    def words(self) -> str:
        """The comparison over all dev rows in one or two sentences."""
        if self.whole is None:
            return "There is no champion yet, so there is nothing to compare with."
        metric, margin = self.whole.found.metric, f"{self.whole.margin:g}"
        if self.outcome == "worse":
            return f"The new model is worse: it loses more than {margin} of {metric}, which chance cannot explain."
        if self.outcome == "not worse":
            return f"The new model is not worse: its loss of {metric} is at most {margin}, at a confidence of 95 %."
        return (
            f"Undecided: {self.whole.found.rows:,} rows are too few to show whether more than {margin} of {metric} is "
            "lost. Use a larger dev split or a wider retraining.margin."
        )

    def as_json(self) -> dict[str, Any]:
        """Return the content of challenge.json."""
        return {"passed": self.passed, **asdict(self), "words": self.words}

    def result(self, rows: int) -> dict[str, Any]:
        """Return the result: "metric" is the task's metric; difference, interval and margin refer to "compared"."""
        found = self.whole.found if self.whole else None
        return {
            "outcome": self.outcome,
            "passed": self.passed,
            "compared": found.metric if found else None,
            "difference": found.difference if found else None,
            "interval": found.interval if found else None,
            "p": found.p if found else None,
            "margin": self.whole.margin if self.whole else None,
            "rows": rows,
            "champion": self.champion["version"],
            "metric": self.metric,
            "metrics": {name: values and values[self.metric] for name, values in self.metrics.items()},
            "reasons": self.reasons,
            "capacity": self.capacity,
            "files": {"challenge": "challenge.html"},
        }


def judge(
    model: ScoredSplit,
    champion: ScoredSplit | None,
    named: Mapping[str, str],
    costs: list[Cost],
    options: Retraining,
    capacity: str = "",
) -> Verdict:
    """Compare the challenger with the champion, which champion.json names, and its costs with their budgets.

    Undecided slices have no effect: slices are small and serve to detect losses beyond the margin, not to exclude them.
    """
    metrics = {"model": as_json(model.metrics()), "champion": as_json(champion.metrics()) if champion else None}
    whole = None
    if champion is not None:
        found = paired.compare(model.task, model.labels, model.predicted, champion.predicted)
        whole = _hold(found, "all dev rows", "retraining.margin", options.margin)
    slices = {} if champion is None else _slices(model, champion, options.slice_margin)
    held = [one.reason for one in (whole, *slices.values()) if one is not None]
    reasons = [reason for reason in (*held, *(cost.reason for cost in costs)) if reason]
    outcome = whole.outcome if whole else "first"
    return Verdict(outcome, named, model.task.metric, metrics, whole, slices, costs, reasons, capacity)


def _slices(model: ScoredSplit, champion: ScoredSplit, margin: float) -> dict[str, MarginCheck]:
    held = {}
    for part in slices_of(model):
        sides = (model.labels, model.predicted, champion.predicted)
        found = paired.compare(model.task, *(part.of(side) for side in sides))
        if part.metrics == (RECALL,):
            found = replace(found, metric=RECALL)
        held[part.name] = _hold(found, f"{part.name} ({part.about})", "retraining.slice_margin", margin)
    return held


def _hold(found: Comparison, about: str, key: str, margin: float) -> MarginCheck:
    outcome, reason = paired.outcome(found, margin), ""
    if outcome == "worse":
        assert found.difference is not None and found.interval is not None and found.p is not None
        low, high = found.interval
        reason = (
            f"{found.metric} {found.model:.4f} on {about} is {-found.difference:.4f} below the champion's "
            f"{found.champion:.4f}: more than {key} = {margin:g} and more than chance ({found.rows} rows, 95 % "
            f"interval of the difference {low:.4f} to {high:.4f}, p {found.p:.2g})"
        )
    return MarginCheck(about, key, margin, found, outcome, reason)
