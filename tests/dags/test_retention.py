"""The Dag retention: what it is asked for, and which logs are old."""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from include.stages import BadInput
from spark_bert.dag.retention import logs, retention_experiment, retention_form
from spark_bert.operators.base import StageOperator


def context(**params: Any) -> Any:
    return {"params": dict.fromkeys(retention_form()) | params}


def test_it_prunes_once_a_week_and_only_lists_unless_the_deployment_or_the_run_says_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dag = importlib.import_module("dags.retention").dag
    assert isinstance(dag, DAG) and dag.max_active_runs == 1 and set(dag.params) == set(retention_form())
    prune: Any = dag.get_task("prune")
    assert isinstance(prune, StageOperator) and prune.experiment_of is retention_experiment
    monkeypatch.delenv("SPARK_BERT_PRUNE_AFTER", raising=False)
    assert retention_experiment(context()).retention.model_dump() == {"days": 30, "remove": False}
    assert retention_experiment(context(**{"retention.remove": True})).retention.remove
    monkeypatch.setenv("SPARK_BERT_PRUNE_AFTER", "60")
    assert retention_experiment(context()).retention.model_dump() == {"days": 60, "remove": True}
    assert not retention_experiment(context(**{"retention.remove": False})).retention.remove


@pytest.mark.parametrize(
    ("days", "message"), [("soon", "write a number of days, for example 30"), ("1", "greater than or equal")]
)
def test_a_wrong_number_of_days_is_refused(days: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_PRUNE_AFTER", days)
    with pytest.raises(BadInput, match=f"SPARK_BERT_PRUNE_AFTER.*{message}"):
        retention_experiment(context())
    with pytest.raises(BadInput, match=message):
        logs.function(**context())


def test_old_logs_are_listed_and_removed_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_BERT_PRUNE_AFTER", raising=False)
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path))
    for run in ("old", "young", "under-way"):
        folder = tmp_path / f"dag_id=finetune/run_id={run}/task_id=train"
        folder.mkdir(parents=True)
        (folder / "attempt=1.log").write_text("a line")
    for path in tmp_path.rglob("*"):
        if "young" not in str(path):
            os.utime(path, times=(time.time() - 40 * 86400,) * 2)
    (tmp_path / "dag_id=finetune/run_id=under-way/task_id=train/attempt=1.log").write_text("another")
    listed = logs.function(**context())
    assert (listed["folders"], listed["removed"]) == (1, 0) and listed["bytes"] >= 6
    assert logs.function(**context(**{"retention.remove": True}))["removed"] == 1
    left = {path.name for path in (tmp_path / "dag_id=finetune").iterdir()}
    assert left == {"run_id=young", "run_id=under-way"}
