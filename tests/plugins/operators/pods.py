"""Operators of the Kubernetes runtime as Airflow makes them, for its tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from airflow.sdk import Context
from kubernetes.client import ApiClient

from include.named_experiments import load
from include.runs import DAG_ID, RUN_ID
from spark_bert.dag.params import from_form
from spark_bert.deployment.places import run_folder
from spark_bert.operators.kubernetes import KubernetesStageOperator

RUN = "manual__2026-01-02T03:04:05.678901+00:00"


def operator(stage: str = "train", *overrides: str) -> KubernetesStageOperator:
    """The operator, with what rendering gives it."""
    made = KubernetesStageOperator(
        task_id=stage, stage=stage, experiment_of=from_form, kubernetes_conn_id=None, startup_check_interval_seconds=0
    )
    made.experiment = load("movies", list(overrides))
    made.command = [stage, "--experiment", made.experiment.model_dump_json(), "--run", str(run_folder("finetune", RUN))]
    made.variables = {DAG_ID: "finetune", RUN_ID: RUN}
    return made


class Store(dict[str, Any]):
    """The task's state store: it outlives tries and clears."""

    def set(self, key: str, value: object) -> None:
        self[key] = value


def context(
    stage: str = "train", max_tries: int = 2, store: Store | None = None, attempt: str = "try-1", clears: int = 0
) -> Context:
    """What Airflow tells one try of a task; `attempt` is the id of its task instance."""
    ti = SimpleNamespace(
        dag_id="finetune", run_id=RUN, task_id=stage, map_index=-1, max_tries=max_tries, try_number=1, id=attempt,
        xcom_push=lambda key, value: None,
    )  # fmt: skip
    values = {
        "ti": ti,
        "dag_run": SimpleNamespace(dag_id="finetune", run_id=RUN, clear_number=clears),
        "run_id": RUN,
        "dag": SimpleNamespace(),
        "task_state_store": Store() if store is None else store,
    }
    return cast(Context, values)


def manifest(stage: str, *overrides: str) -> dict[str, Any]:
    """What the cluster would be sent."""
    made = operator(stage, *overrides)
    made._configure_pod(context(stage))
    made.namespace = "default"
    return cast(
        dict[str, Any], ApiClient().sanitize_for_serialization(made.build_pod_request_obj(context(stage), dry_run=True))
    )


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["spec"]["containers"]
    return cast(dict[str, Any], only)


def mounts(pod: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    """Path inside to volume, path on it, and rw or ro."""
    found = container(pod)["volumeMounts"]
    return {
        mount["mountPath"]: (mount["name"], mount.get("subPath", ""), "ro" if mount.get("readOnly") else "rw")
        for mount in found
    }
