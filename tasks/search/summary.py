"""The content of search.json, which both stages of a search write, and which report, panel, and `make tune` read.

While `search` is at work, the file lies in the folder of its run, with what can be said at that time.

search, task, metric   the name of the search, the task, and the metric of dev that is maximized
seed                   the training.seed of all trials
minutes, limit         the budget, and the largest number of trials (0: none)
seconds                what was spent of the budget
space                  field -> {"low", "high", "log", "step"} or {"choices": [...]}
default                field -> value in the experiment that the search began with
shares                 the share of its steps that a training has taken at each rung
trials                 by number:
number, run        the run's folder is runs/<run>
state              "complete", "paused", "running", or "failed"
values             field -> value
default            whether these are the values of the experiment
rungs              of each rung that it has reached: {"step", "metric", "seconds"} (seconds: all until then)
metric, metrics    of dev, at the last of these; None or {} before the first
passed             whether the gate was passed; None if it was not reached
seconds            all that was spent on it
message            why it failed
best                   the number of the best trial of the highest rung that any has reached; None if none has
importance             field -> share of the variance of the metric at the first rung that it explains (fANOVA:
                   Hutter, Hoos & Leyton-Brown 2014), the largest first; {} for less than four trials
comparison             None in the artifact of `search`. In that of `recommend`:
seeds              those with which both were trained; the search has not seen them
winner, default    {"runs": [...], "values": [...] (the metric, by seed), "mean"}
rows               of dev
difference         of the means: winner - default
interval, p        its 95 % interval, and the p of the hypothesis that there is none, over rows and seeds
recommended        "winner" or "default"
reason             in a sentence
experiment         section -> field -> value: what experiment.yaml has
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optuna import create_study
from optuna.trial import FrozenTrial, TrialState, create_trial

from include.fields.search import Range
from include.search_space import Space
from include.stages import BadInput
from tasks.search import rungs
from tasks.search.proposals import values_of
from tasks.search.storage import SECONDS
from tasks.search.worker import FAILED, REACHED, Search

_STATES = {TrialState.COMPLETE: "complete", TrialState.WAITING: "paused", TrialState.FAIL: "failed"}
_LEAST = 4  # trials of which importance says anything


def summarize(search: Search, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    """Return the content of search.json. Raise BadInput if no trial has reached a rung."""
    if rungs.best(trials) is None:
        raise BadInput(
            f"no trial of the search {search.name} was trained until its first rung within search.minutes "
            f"{search.experiment.search.minutes:g}: write more minutes"
        )
    return {**so_far(search, trials), "importance": _importance(trials, search.space)}


def so_far(search: Search, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    """Return what can be said at any time, which is all but the importance of the fields, and takes no time."""
    best, asked = rungs.best(trials), search.experiment.search
    default = search.experiment.part(tuple(search.space))
    return {
        "search": search.name,
        "task": search.experiment.task.name,
        "metric": search.metric,
        "seed": search.experiment.training.seed,
        "minutes": asked.minutes,
        "limit": asked.trials,
        "seconds": round(sum(trial.user_attrs.get(SECONDS, 0.0) for trial in trials), 1),
        "space": {name: _entry(entry) for name, entry in search.space.items()},
        "default": default,
        "shares": list(rungs.SHARES),
        "trials": [_trial(search, trial, default) for trial in trials],
        "best": best and best.number,
        "importance": {},
        "comparison": None,
    }


def _entry(entry: Range | tuple[Any, ...]) -> dict[str, Any]:
    return entry.model_dump(mode="json") if isinstance(entry, Range) else {"choices": list(entry)}


def _trial(search: Search, trial: FrozenTrial, default: dict[str, Any]) -> dict[str, Any]:
    values = values_of(trial.params, search.space)
    reached = [trial.user_attrs[REACHED.format(rung)] for rung in sorted(trial.intermediate_values)]
    last = reached[-1] if reached else {"metrics": {}, "passed": None}
    return {
        "number": trial.number,
        "run": search.run_of(trial.number).folder.name,
        "state": _STATES.get(trial.state, "running"),
        "values": values,
        "default": values == default,
        "rungs": [
            {"step": one["step"], "metric": one["metrics"].get(search.metric), "seconds": one["seconds"]}
            for one in reached
        ],
        "metric": last["metrics"].get(search.metric),
        "metrics": last["metrics"],
        "passed": last["passed"],
        "seconds": trial.user_attrs.get(SECONDS, 0.0),
        "message": trial.user_attrs.get(FAILED, ""),
    }


def _importance(trials: Sequence[FrozenTrial], space: Space) -> dict[str, float]:
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    reached = rungs.ranked(trials, 0)
    if len(reached) < _LEAST or len({trial.intermediate_values[0] for trial in reached}) == 1:
        return {}
    study = create_study(direction="maximize")
    for trial in sorted(reached, key=lambda trial: trial.number):
        value = trial.intermediate_values[0]
        study.add_trial(create_trial(value=value, params=trial.params, distributions=trial.distributions))
    found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))
    return {name: round(share, 4) for name, share in found.items()}
