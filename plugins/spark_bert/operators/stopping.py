"""What stops the containers and pods of stages besides `on_kill`: the shutdown of a worker, and the Dag housekeeping.

They stop a container with `stop_and_remove` in docker_containers.py, and a pod with `delete` in kubernetes_pods.py.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, NamedTuple

from airflow.sdk import get_current_context, task
from airflow.sdk.types import RuntimeTaskInstanceProtocol

from include.stages import BadInput
from spark_bert.operators.runtimes import runtime

#: The module in operators/ that lists the workloads, for each runtime in which a stage can outlive its worker.
_WORKLOADS = {"docker": "docker_containers", "kubernetes": "kubernetes_pods"}
#: The states of an Airflow task that follows its container or will attach to it.
_ALIVE = {
    "scheduled", "queued", "running", "restarting", "up_for_retry", "up_for_reschedule", "deferred", "awaiting_input",
}  # fmt: skip
#: At the shutdown of a worker, `keep` lets containers run, so that the next try attaches to them; `stop` stops them.
ON_SHUTDOWN = "SPARK_BERT_ON_SHUTDOWN"
_STATE_TIMEOUT = 3.0  # seconds; Airflow kills the process of a task 5 seconds after its SIGTERM


class Workload(NamedTuple):
    """A container or a pod of a stage, with the ids of its task instance."""

    name: str
    dag: str
    run: str
    task: str
    map_index: str  # "-1" if the Airflow task is not mapped
    end: Callable[[], None]  # stops it with a grace period and removes it, unless a try has taken it over meanwhile


def keeps_containers() -> bool:
    """Return whether containers outlive a shutdown of their worker."""
    choice = os.environ.get(ON_SHUTDOWN) or "stop"
    if choice not in ("stop", "keep"):
        raise BadInput(f"{ON_SHUTDOWN}={choice!r} is not valid: write stop or keep")
    return choice == "keep"


def outlives_worker(ti: Any) -> bool:
    """Return whether the container of a task instance keeps running after its Airflow task got a SIGTERM.

    An Airflow task that a user has cleared, marked or deleted, and whose container therefore ends, is not `running`.
    """
    return keeps_containers() and _state(ti) in ("running", "unknown")


def _state(ti: Any) -> str:
    """Return the state of the task instance in Airflow's database, or "unknown" if Airflow does not answer.

    The request is sent from another thread, because the signal may have interrupted this one in the middle of another.
    """
    pool = ThreadPoolExecutor(1)
    request = pool.submit(ti.get_task_states, ti.dag_id, ti.map_index, task_ids=[ti.task_id], run_ids=[ti.run_id])
    pool.shutdown(wait=False)
    try:
        states = request.result(_STATE_TIMEOUT)
    except Exception:
        return "unknown"
    return str(next(iter(states.get(ti.run_id, {}).values()), "deleted"))


def may_outlive() -> bool:
    """Return whether a stage can outlive its worker in the deployment's runtime. Its processes never do."""
    return runtime() in _WORKLOADS


@task(doc_md="stop the containers and pods of stages whose Airflow task has ended")
def end_orphans() -> list[str]:
    """Stop every container or pod of this deployment whose Airflow task has ended, and return their names.

    The workloads are listed before the states are read, so a task that has ended cannot have a try that attaches to a
    listed workload: only a clear starts another try, and that try starts a new container.
    """
    if not may_outlive():
        return []
    found = importlib.import_module(f"spark_bert.operators.{_WORKLOADS[runtime()]}").list_workloads()
    ended = list(find_orphans(found, get_current_context()["ti"]))
    for workload in ended:
        workload.end()
    return [workload.name for workload in ended]


def find_orphans(found: Iterable[Workload], ti: RuntimeTaskInstanceProtocol) -> Iterable[Workload]:
    """Yield the workloads whose Airflow task has ended, was cleared but not yet started again, or is unknown."""
    for dag, workloads in groupby(sorted(found, key=lambda one: one[:5]), key=lambda one: one.dag):
        of_dag = list(workloads)
        tasks, runs = sorted({one.task for one in of_dag}), sorted({one.run for one in of_dag})
        states: dict[str, dict[str, Any]] = ti.get_task_states(dag_id=dag, task_ids=tasks, run_ids=runs)
        for workload in of_dag:
            # Airflow names a mapped task instance by its task id and its map index.
            instance = workload.task if workload.map_index == "-1" else f"{workload.task}_{workload.map_index}"
            if states.get(workload.run, {}).get(instance) not in _ALIVE:
                yield workload
