"""The verdict: what was compared, what came out, and a reason for each thing that refuses the new model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from include.sections import Retraining
from tasks.scoring.metrics import as_json
from tasks.scoring.scored import Scored
from tasks.scoring.slices import slices_of
from tasks.stages.challenge import paired
from tasks.stages.challenge.costs import Cost
from tasks.stages.challenge.paired import Comparison


@dataclass(frozen=True)
class Held:
    """A comparison held against its margin.

    Attributes:
        about: which rows, in words.
        key: the experiment's field that sets the margin.
        margin: the largest loss that is accepted.
        found: the comparison.
        outcome: what it says.
        reason: why it refuses the model; "" when it does not.
    """

    about: str
    key: str
    margin: float
    found: Comparison
    outcome: paired.Outcome
    reason: str


@dataclass(frozen=True)
class Verdict:
    """What the challenge decided.

    Attributes:
        outcome: of all dev rows; first: there is no champion to compare with.
        champion: what champion.json says.
        metric: the task's.
        metrics: every metric of "model" and "champion"; None where it is undefined or there is no champion.
        whole: the comparison over all dev rows; None without a champion.
        slices: those of the slices, by name.
        costs: latency and size.
        reasons: what refuses the model; without any it has passed.
    """

    outcome: paired.Outcome | Literal["first"]
    champion: Mapping[str, str]
    metric: str
    metrics: dict[str, dict[str, float | None] | None]
    whole: Held | None
    slices: dict[str, Held]
    costs: list[Cost]
    reasons: list[str]

    @property
    def passed(self) -> bool:
        """Whether nothing refuses the model. That does not make an undecided one a champion."""
        return not self.reasons

    def as_json(self) -> dict[str, Any]:
        """The same for challenge.json."""
        return {"passed": self.passed, **asdict(self)}


def judge(
    model: Scored, champion: Scored | None, named: Mapping[str, str], costs: list[Cost], options: Retraining
) -> Verdict:
    """Hold the new model against the champion, whom champion.json has named, and its costs against their budgets.

    A slice refuses when it is worse. One that is undecided does not matter: slices are small, and a loss beyond the
    margin is what they are there to find, not proof that there is none. A label's slice also finds the classifier
    that keeps its accuracy by saying one class only, which right and wrong rows together do not.
    """
    metrics = {"model": as_json(model.metrics()), "champion": as_json(champion.metrics()) if champion else None}
    whole = None if champion is None else _whole(model, champion, options.margin)
    slices = {} if champion is None else _slices(model, champion, options.slice_margin)
    held = [one.reason for one in (whole, *slices.values()) if one is not None]
    reasons = [reason for reason in (*held, *(cost.reason for cost in costs)) if reason]
    outcome = whole.outcome if whole else "first"
    return Verdict(outcome, named, model.task.metric, metrics, whole, slices, costs, reasons)


def _whole(model: Scored, champion: Scored, margin: float) -> Held:
    found = paired.compare(model.task, model.labels, model.predicted, champion.predicted)
    return _hold(found, "all dev rows", "retraining.margin", margin)


def _slices(model: Scored, champion: Scored, margin: float) -> dict[str, Held]:
    held = {}
    for part in slices_of(model):
        labels, ours, theirs = model.labels[part.mask], model.predicted[part.mask], champion.predicted[part.mask]
        found = paired.compare(model.task, labels, ours, theirs)
        held[part.name] = _hold(found, f"{part.name} ({part.about})", "retraining.slice_margin", margin)
    return held


def _hold(found: Comparison, about: str, key: str, margin: float) -> Held:
    outcome = paired.outcome(found, margin)
    return Held(about, key, margin, found, outcome, _reason(found, about, key, margin) if outcome == "worse" else "")


def _reason(found: Comparison, about: str, key: str, margin: float) -> str:
    assert found.difference is not None and found.interval is not None and found.p is not None  # it is worse
    low, high = found.interval
    return (
        f"{found.metric} {found.model:.4f} on {about} is {-found.difference:.4f} below the champion's "
        f"{found.champion:.4f}: more than {key} = {margin:g} and more than chance ({found.rows} rows, 95 % interval "
        f"of the difference {low:.4f} to {high:.4f}, p {found.p:.2g})"
    )
