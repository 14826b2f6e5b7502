"""What Optuna proposes: a function of the search's seed and of the trials before, whatever process asks for it."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState, create_trial

from include.fields.search import Range
from include.search_space import Space

_DIGITS = 3  # of a number without steps, so that an experiment with it can be read
_ATTEMPTS = 20  # to find settings that were not tried yet

optuna.logging.set_verbosity(optuna.logging.WARNING)
warnings.filterwarnings("ignore", category=ExperimentalWarning)


def distributions(space: Space, whole: Sequence[str]) -> dict[str, BaseDistribution]:
    """Return a space in Optuna's terms; `whole` names the fields that are whole numbers. Choices are JSON texts."""
    return {name: _distribution(entry, name in whole) for name, entry in space.items()}


def _distribution(entry: Range | tuple[Any, ...], whole: bool) -> BaseDistribution:
    if not isinstance(entry, Range):
        return CategoricalDistribution([json.dumps(value) for value in entry])
    if whole:
        return IntDistribution(int(entry.low), int(entry.high), log=entry.log, step=int(entry.step or 1))
    return FloatDistribution(entry.low, entry.high, log=entry.log, step=entry.step)


def values_of(params: dict[str, Any], space: Space) -> dict[str, Any]:
    """Return a trial's params as values of the fields."""
    return {name: params[name] if isinstance(space[name], Range) else json.loads(params[name]) for name in space}


def params_of(values: dict[str, Any], space: Space) -> dict[str, Any]:
    """Return values of the fields as a trial's params."""
    return {name: values[name] if isinstance(space[name], Range) else json.dumps(values[name]) for name in space}


def propose(trials: Sequence[FrozenTrial], spread: dict[str, BaseDistribution], seed: int) -> dict[str, Any] | None:
    """Return the params of the next trial, or None if nothing is found that was not tried yet."""
    tried = [trial.params for trial in trials]
    for attempt in range(_ATTEMPTS):
        seeds = np.random.SeedSequence([seed, len(trials), attempt])
        sampler = optuna.samplers.TPESampler(
            seed=int(seeds.generate_state(1)[0]), multivariate=True, constant_liar=True, n_ei_candidates=24
        )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials([as_seen(trial) for trial in trials])
        params = {name: _rounded(value, spread[name]) for name, value in study.ask(spread).params.items()}
        if params not in tried:
            return params
    return None


def as_seen(trial: FrozenTrial) -> FrozenTrial:
    """Return a trial as Optuna's samplers are to see it: one that has paused or failed counts as pruned."""
    state = trial.state if trial.state in (TrialState.COMPLETE, TrialState.RUNNING) else TrialState.PRUNED
    return create_trial(
        state=state, value=trial.value, params=trial.params, distributions=trial.distributions,
        intermediate_values={} if trial.state == TrialState.FAIL else trial.intermediate_values,
    )  # fmt: skip


def _rounded(value: Any, spread: BaseDistribution) -> Any:
    if not isinstance(spread, FloatDistribution):
        return value
    if spread.step is not None:
        return round(value, 12)  # 0.06, and not 0.06000000000000001
    digits = _DIGITS - 1 - (math.floor(math.log10(abs(value))) if value else 0)
    return min(max(round(value, digits), spread.low), spread.high)
