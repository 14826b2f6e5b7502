"""The Dag leaderboard: its trainings, their experiments, and their run folders."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.taskgroup import MappedTaskGroup

from include.leaderboard import MODELS
from include.named_experiments import load
from include.stages import BadInput
from spark_bert.dag.pools import pool
from spark_bert.deployment.places import run_folder, this_run
from spark_bert.operators.base import StageOperator
from spark_bert.studies.leaderboard import arm_experiment, leaderboard_form, list_arms
from spark_bert.web.links import LINKS


def context(index: int, **params: Any) -> Any:
    """Of an index of the mapped task group, whose form was sent with these fields."""
    run = SimpleNamespace(dag_id="leaderboard", run_id="manual__1")
    sent = {"tasks": ["SST-2"], "models": ["tfidf", "textcnn"], "seeds": [1, 2], "data.path": "glue"} | params
    return {"params": sent, "dag_run": run, "ti": SimpleNamespace(run_id=run.run_id, map_index=index)}


def test_every_training_goes_through_the_stages_and_the_leaderboard_comes_last(dag: DAG) -> None:
    group = dag.task_group.get_child_by_label("models")
    assert isinstance(group, MappedTaskGroup)
    assert {task.task_id for task in group.iter_tasks()} == {
        "validate", "preprocess", "pretrain", "teach", "train", "evaluate", "gate", "package", "predict",
    }  # fmt: skip
    last = dag.get_task("leaderboard")
    assert isinstance(last, StageOperator) and last.trigger_rule == "all_done"
    assert last.upstream_task_ids == {"predict"}
    failing = dag.get_task("succeeded")  # the run fails with the trainings
    assert failing.upstream_task_ids == {"predict"} and not failing.downstream_task_ids
    assert [dag.get_task(name).max_active_tis_per_dag for name in ("preprocess", "train")] == [1, None]
    assert {task.pool for task in dag.tasks} == {pool("train")}


def test_the_trainings_are_listed_by_task_model_and_seed() -> None:
    listed = list_arms.function(**context(-1))
    assert [(arm["model"], arm["seed"]) for arm in listed] == [
        ("tfidf", 1), ("tfidf", 2), ("textcnn", 1), ("textcnn", 2),
    ]  # fmt: skip
    assert {arm["task"] for arm in listed} == {"SST-2"}


def test_each_index_has_the_experiment_of_its_training_and_a_folder_of_its_own() -> None:
    wanted = [
        *("data.path=glue", "model.kind=textcnn", "model.dropout=0.5", "training.learning_rate=0.001"),
        *("training.epochs=3", "training.seed=2", "gate.accuracy=-1", "gate.beat_baseline=false"),
    ]
    assert arm_experiment(context(3)) == load("sst2", wanted)
    folders = {this_run(context(index)).folder for index in range(4)}
    assert len(folders) == 4 and run_folder("leaderboard", "manual__1") not in folders
    assert this_run(context(-1)).folder == run_folder("leaderboard", "manual__1")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("task", ["movie-reviews", "SST-2", "CoLA", "STS-B"])
def test_every_model_can_be_trained_on_every_task(task: str, model: str) -> None:
    experiment = arm_experiment(context(0, models=[model], tasks=[task]))
    assert (experiment.data.task, experiment.training.seed) == (task, 1)
    assert experiment.thresholds == {experiment.task.metric: -1}


def test_what_a_training_sets_cannot_hold_for_all() -> None:
    assert "training.seed" not in leaderboard_form() and "training.batch_size" in leaderboard_form()
    with pytest.raises(BadInput, match=r"training\.seed cannot hold for the whole leaderboard"):
        arm_experiment(context(0, **{"training.seed": 7}))


def test_buttons_open_the_files_of_their_index() -> None:
    link = LINKS["evaluate"][0]
    operator: Any = SimpleNamespace(result={"stage": "evaluate", "files": {"report": "report.html"}})
    key: Any = SimpleNamespace(dag_id="leaderboard", run_id="manual__1", map_index=2)
    assert link.get_link(operator, ti_key=key).endswith("/runs/leaderboard/manual__1%5B2%5D/evaluate/report.html")
