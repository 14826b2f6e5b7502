"""The models of the leaderboard, and the changes that each of them makes to a task's named experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from include.ablations import EXPERIMENTS
from include.glue import TASKS
from include.stages import BadInput

_SMALL, _LARGE = "all-MiniLM-L6-v2", "all-mpnet-base-v2"
#: Values by "section.field" of each model. The baselines share the tokenizer of the small encoder, and so token ids.
MODELS: dict[str, dict[str, Any]] = {
    "tfidf": {"model.kind": "tfidf", "model.name": _SMALL},
    "textcnn": {
        "model.kind": "textcnn", "model.name": _SMALL, "model.dropout": 0.5,
        "training.learning_rate": 1e-3, "training.epochs": 3,
    },
    "frozen": {"model.kind": "frozen", "model.name": _SMALL},
    _SMALL: {"model.kind": "encoder", "model.name": _SMALL},
    _LARGE: {"model.kind": "encoder", "model.name": _LARGE, "training.learning_rate": 2e-5},
}  # fmt: skip


def arms(tasks: Sequence[str], models: Sequence[str], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the task, the model and the seed of every training, those of the same task after one another."""
    for task, model, seed in product(tasks, models, seeds):
        yield {"task": task, "model": model, "seed": seed}


def changes(arm: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named experiment and the values by "section.field" of a training, one of `arms`.

    Its gate accepts every model, because a leaderboard only measures. Raise BadInput if an override sets such a field.
    """
    task = TASKS[arm["task"]]
    decided = {
        "experiment": EXPERIMENTS[task.name], **MODELS[arm["model"]], "training.seed": arm["seed"],
        f"gate.{task.metric}": -1.0, "gate.beat_baseline": False,
    }  # fmt: skip
    if taken := sorted(set(overrides) & set(decided)):
        raise BadInput(f"{taken[0]} cannot hold for the whole leaderboard, because each training sets it: remove it")
    return {**overrides, **decided}
