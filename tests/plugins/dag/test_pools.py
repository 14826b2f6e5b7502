"""Pools: which tasks share one, how many run at once, and that they are there wherever Airflow has started."""

from __future__ import annotations

import importlib

import pytest

from include.stages import STAGES, BadInput
from spark_bert.dag.pools import make_pools, pool, slots

TRAINING, SPARK = "spark_bert_training", "spark_bert_spark"


def test_training_and_spark_have_pools() -> None:
    stages = {name: pool(name) for name in STAGES}
    assert {stage for stage, name in stages.items() if name == TRAINING} == {"pretrain", "train", "search", "recommend"}
    assert {stage for stage, name in stages.items() if name == SPARK} == {
        "validate", "preprocess", "teach", "predict", "score", "stream",
    }  # fmt: skip
    assert set(stages.values()) == {"default_pool", *slots()}


@pytest.mark.parametrize("name", ["finetune", "ablation", "retrain"])
def test_every_dag_shares_them(name: str) -> None:
    dag = importlib.import_module(f"dags.{name}").dag
    assert {task_id: dag.get_task(task_id).pool for task_id in ("train", "validate", "evaluate")} == {
        "train": TRAINING, "validate": SPARK, "evaluate": "default_pool",
    }  # fmt: skip


def test_the_deployment_says_how_many_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_BERT_POOLS", raising=False)
    assert slots() == {TRAINING: 1, SPARK: 2}
    monkeypatch.setenv("SPARK_BERT_POOLS", '{"training": 4}')
    assert slots() == {TRAINING: 4, SPARK: 2}


@pytest.mark.parametrize("text", ["4", "[]", '{"train": 1}', '{"spark": 0}', '{"spark": true}', '{"spark": "2"}', "{"])
def test_a_size_that_means_nothing_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_POOLS", text)
    with pytest.raises(BadInput, match=r"is not valid: write it as SPARK_BERT_POOLS='\{\"training\": 2"):
        slots()
    with pytest.raises(BadInput, match="SPARK_BERT_POOLS="):  # so that no Dag loads
        pool("gate")


def test_they_are_there_once_airflow_has_started(database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task in a pool that is missing waits for ever. Sizes that a person has set stay, unless the deployment says."""
    from airflow.jobs.job import Job
    from airflow.models.pool import Pool

    def sizes() -> dict[str, int]:
        return {str(found.pool): found.slots for found in Pool.get_pools() if found.pool != "default_pool"}

    monkeypatch.delenv("SPARK_BERT_POOLS", raising=False)
    Job()  # type: ignore[no-untyped-call]  # what scheduler, triggerer and Dag processor make when they start
    assert sizes() == {TRAINING: 1, SPARK: 2}
    Pool.create_or_update_pool(TRAINING, 3, "", include_deferred=False)
    make_pools()
    assert sizes() == {TRAINING: 3, SPARK: 2}
    monkeypatch.setenv("SPARK_BERT_POOLS", '{"training": 5}')
    make_pools()
    assert sizes() == {TRAINING: 5, SPARK: 2}
