"""The trainings of the Dag `leaderboard`, one per index of its mapped task group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Context, Param, task

from include.ablations import EXPERIMENTS
from include.experiment import Experiment
from include.leaderboard import MODELS, arms, changes
from spark_bert.dag.params import filled, form, resolve

_CHOICES: dict[str, tuple[list[Any], list[Any], str]] = {
    "models": (list(MODELS), ["tfidf", "textcnn", "frozen", "all-MiniLM-L6-v2"], "The models."),
    "tasks": (list(EXPERIMENTS), ["movie-reviews"], "The tasks whose named experiments the models change."),
}
_SEEDS = "seeds"


def leaderboard_form() -> dict[str, Param]:
    """Return the Dag's params: models, tasks, seeds, and the other fields of the form, which apply to all trainings."""
    lists = {
        name: Param(
            default, title=name.capitalize(), type="array", items={"type": "string", "enum": known}, examples=known,
            minItems=1, section="Leaderboard", description_md=f"{about} Default: **{', '.join(default)}**.",
        )
        for name, (known, default, about) in _CHOICES.items()
    }  # fmt: skip
    seeds = Param(
        [1, 2, 3], title="Seeds", type="array", items={"type": "integer", "minimum": 0}, minItems=1,
        section="Leaderboard", description_md="The seeds of each training (training.seed). Default: **1, 2, 3**.",
    )  # fmt: skip
    decided = {"experiment", "data.task", *changes(next(arms(["SST-2"], ["textcnn"], [1])), {})}
    return {**lists, _SEEDS: seeds, **{key: param for key, param in form().items() if key not in decided}}


@task(task_id="arms", doc_md="list the trainings")
def list_arms(**context: Any) -> list[dict[str, Any]]:
    """Return the task, the model and the seed of each training."""
    return _arms(context["params"])


def arm_experiment(context: Context) -> Experiment:
    """Return the experiment of the training that belongs to the index of the Airflow task."""
    params, index = context["params"], context["ti"].map_index
    overrides = {key: value for key, value in filled(params).items() if key not in (*_CHOICES, _SEEDS)}
    return resolve(changes(_arms(params)[index or 0], overrides))


def _arms(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(arms(params["tasks"], params["models"], params[_SEEDS]))
