"""Find and stop containers and pods whose Airflow task has ended, so that none keeps running unnoticed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, NamedTuple

from airflow.sdk import get_current_context, task
from airflow.sdk.types import RuntimeTaskInstanceProtocol

from spark_bert.dag.pipeline import runtime

#: The module in operators/ that lists the workloads, for each runtime in which a stage can outlive its worker.
_ENGINES = {"docker": "engine", "kubernetes": "cluster"}
#: The states of an Airflow task that follows its container or will attach to it.
_ALIVE = {
    "scheduled", "queued", "running", "restarting", "up_for_retry", "up_for_reschedule", "deferred", "awaiting_input",
}  # fmt: skip


class Workload(NamedTuple):
    """A container or a pod of a stage.

    Attributes:
        name: the name of the container or the pod.
        dag: the Dag id of its task instance.
        run: the run id of its task instance.
        task: the task id of its task instance.
        map_index: the map index of its task instance, "-1" if the Airflow task is not mapped.
        end: stops it with a grace period and removes it, unless a try has taken it over since it was listed.
    """

    name: str
    dag: str
    run: str
    task: str
    map_index: str
    end: Callable[[], None]


def may_outlive() -> bool:
    """Return whether a stage can outlive its worker in the deployment's runtime. Its processes never do."""
    return runtime() in _ENGINES


@task(doc_md="stop the containers and pods of stages whose Airflow task has ended")
def end_orphans() -> list[str]:
    """Stop and remove every container or pod of this deployment whose Airflow task has ended.

    The state in Airflow's database decides. After the loss of a worker, the state stays `running` until the heartbeat
    has been missing for five minutes. An Airflow task that waits for a retry is left alone, because its next try
    attaches to the container. The workloads are listed before the states are read, so a task that has ended cannot have
    a try that attaches to a listed workload. Only a clear starts another try, and that try starts a new container.

    Returns:
        The names of the containers or pods.
    """
    if not may_outlive():
        return []
    found = importlib.import_module(f"spark_bert.operators.{_ENGINES[runtime()]}").list_workloads()
    ended = list(find_orphans(found, get_current_context()["ti"]))
    for workload in ended:
        workload.end()
    return [workload.name for workload in ended]


def find_orphans(found: Iterable[Workload], ti: RuntimeTaskInstanceProtocol) -> Iterable[Workload]:
    """Yield the workloads whose Airflow task has ended, was cleared but not yet started again, or is unknown.

    Args:
        found: the workloads to check.
        ti: any running task instance, through which the states of the others are read.
    """
    for dag, workloads in groupby(sorted(found, key=lambda one: one[:5]), key=lambda one: one.dag):
        of_dag = list(workloads)
        tasks, runs = sorted({one.task for one in of_dag}), sorted({one.run for one in of_dag})
        states: dict[str, dict[str, Any]] = ti.get_task_states(dag_id=dag, task_ids=tasks, run_ids=runs)
        for workload in of_dag:
            # Airflow names a mapped task instance by its task id and its map index.
            instance = workload.task if workload.map_index == "-1" else f"{workload.task}_{workload.map_index}"
            if states.get(workload.run, {}).get(instance) not in _ALIVE:
                yield workload
