"""Finds and ends the containers and pods of stages whose task is over, so that nothing trains on unseen."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, NamedTuple

from airflow.sdk import get_current_context, task
from airflow.sdk.types import RuntimeTaskInstanceProtocol

from spark_bert.pipeline import runtime

#: The module below operators/ that lists what is at work, for each runtime where a stage can outlive its worker.
_ENGINES = {"docker": "engine", "kubernetes": "cluster"}
#: The states of a task that follows its container, or will.
_ALIVE = {
    "scheduled", "queued", "running", "restarting", "up_for_retry", "up_for_reschedule", "deferred", "awaiting_input",
}  # fmt: skip


class Work(NamedTuple):
    """A container or a pod of a stage.

    Attributes:
        name: its own.
        dag, run, task, map_index: the task instance that it works for.
        end: stops and removes it, with time to save; does nothing if a try has taken it over since it was listed.
    """

    name: str
    dag: str
    run: str
    task: str
    map_index: str
    end: Callable[[], None]


@task(doc_md="end the containers and pods of stages that no task follows any more")
def end_orphans() -> list[str]:
    """End every container or pod of this deployment whose task is over; the names of those.

    Airflow's own record decides. A worker that is lost leaves its task running there until its heartbeat has been
    missed (five minutes), and a task that will be tried again attaches to what runs. What is listed before its task is
    seen to be over can only be taken over once more after a clear, which starts afresh.
    """
    if runtime() not in _ENGINES:
        return []  # processes end with their worker
    found = importlib.import_module(f"spark_bert.operators.{_ENGINES[runtime()]}").at_work()
    ended = list(orphans(found, get_current_context()["ti"]))
    for work in ended:
        work.end()
    return [work.name for work in ended]


def orphans(found: Iterable[Work], ti: RuntimeTaskInstanceProtocol) -> Iterable[Work]:
    """Those of the containers whose task is over, was cleared and not started again, or is no longer known."""
    for dag, works in groupby(sorted(found, key=lambda work: work[:5]), key=lambda work: work.dag):
        of_dag = list(works)
        tasks, runs = sorted({work.task for work in of_dag}), sorted({work.run for work in of_dag})
        states: dict[str, dict[str, Any]] = ti.get_task_states(dag_id=dag, task_ids=tasks, run_ids=runs)
        for work in of_dag:
            instance = work.task if work.map_index == "-1" else f"{work.task}_{work.map_index}"
            if states.get(work.run, {}).get(instance) not in _ALIVE:
                yield work
