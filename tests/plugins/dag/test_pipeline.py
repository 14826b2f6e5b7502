"""The runtime is the deployment's choice, made where the Dag is loaded."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG

from include.stages import PIPELINE, BadInput
from spark_bert.dag.pipeline import pipeline


@pytest.mark.parametrize(
    ("runtime", "operator"),
    [
        (None, "ProcessStageOperator"),
        ("", "ProcessStageOperator"),
        ("process", "ProcessStageOperator"),
        ("docker", "DockerStageOperator"),
        ("kubernetes", "KubernetesStageOperator"),
    ],
)
def test_the_deployment_names_the_runtime(runtime: str | None, operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_BERT_RUNTIME", raising=False)
    if runtime is not None:
        monkeypatch.setenv("SPARK_BERT_RUNTIME", runtime)
    with DAG("made_up", schedule=None) as dag:
        pipeline()
    assert [(task.task_id, type(task).__name__) for task in dag.tasks] == [(stage, operator) for stage in PIPELINE]


def test_an_unknown_runtime_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_RUNTIME", "podman")
    with DAG("made_up", schedule=None), pytest.raises(BadInput, match="'podman' is not a runtime: write one of"):
        pipeline()
