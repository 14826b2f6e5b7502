"""Successive halving whose rungs are pauses of a training.

It is asynchronous (ASHA: Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning, algorithm 2): when a
process is free, a trial that is among the best third of its rung goes on to the next one, or else a new trial begins.
Optuna only prunes, so the rungs are kept here, over its trials: the value of rung r is the intermediate value r, a
trial that is WAITING has paused at the last one of its values, and its attribute RUNG is the one that it goes to.
"""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

REDUCTION = 3
#: The share of its steps that a training has taken at each rung. The schedule is always that of the whole training.
SHARES = (1 / 9, 1 / 3, 1.0)
LAST = len(SHARES) - 1
#: The attribute of a trial with the number of the rung that it goes to, or has reached.
RUNG = "rung"


def ranked(trials: Sequence[FrozenTrial], rung: int) -> list[FrozenTrial]:
    """Return the trials that have reached a rung, the best one first."""
    reached = (trial for trial in trials if rung in trial.intermediate_values)
    return sorted(reached, key=lambda trial: (-trial.intermediate_values[rung], trial.number))


def promotion(trials: Sequence[FrozenTrial]) -> tuple[FrozenTrial, int] | None:
    """Return the paused trial that is to go on, and to which rung; the highest rung has precedence."""
    for rung in reversed(range(LAST)):
        reached = ranked(trials, rung)
        for trial in reached[: len(reached) // REDUCTION]:
            if trial in paused(trials, rung):
                return trial, rung + 1
    return None


def paused(trials: Sequence[FrozenTrial], rung: int) -> list[FrozenTrial]:
    """Return the trials that have paused at a rung, the best one first."""
    waiting = (trial for trial in ranked(trials, rung) if trial.state == TrialState.WAITING)
    return [trial for trial in waiting if trial.user_attrs[RUNG] == rung]


def best(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """Return the best trial of the highest rung that any has reached."""
    return next((found[0] for rung in reversed(range(LAST + 1)) if (found := ranked(trials, rung))), None)
