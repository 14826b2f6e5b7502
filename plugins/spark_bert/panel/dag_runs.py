"""What Airflow's database says of Dag runs. Names of run folders stand for runs, because records are named by them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from spark_bert.places import indexed, run_folder, without_index


@dataclass(frozen=True)
class DagRunState:
    """A Dag run that Airflow has not seen succeed, or an index in it of a mapped task group, as `indexed` names it.

    It is under way ("running"), "stopped", or "failed".
    """

    dag_id: str
    run_id: str
    state: str


@dataclass(frozen=True)
class TaskState:
    """What Airflow says of one of its tasks: its state, and when its last try started and ended, in s since 1970."""

    state: str
    started: float | None
    ended: float | None
    tries: int


def not_succeeded() -> dict[str, DagRunState]:
    """Return the Dag runs that have not ended or have failed, by the names of their folders.

    A run was stopped if Airflow skipped what was left of it, as it does when a person marks the run as failed or its
    time is over. After a failure of a task, those behind it are `upstream_failed`.

    Of a mapped task group, it also returns each index of which not all tasks have ended, in Dag runs under way.
    """
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance as Task
    from airflow.utils.state import State
    from sqlalchemy import and_, or_, select

    def has_task(state: str) -> Any:
        of_run = Task.dag_id == DagRun.dag_id, Task.run_id == DagRun.run_id
        return select(Task.id).where(*of_run, Task.state == state).exists()

    stopped = and_(DagRun.state == "failed", has_task("skipped"), ~has_task("upstream_failed"))
    runs = _execute(select(DagRun.dag_id, DagRun.run_id, DagRun.state, stopped).where(DagRun.state != "success"))
    found = [
        DagRunState(dag_id, run_id, "stopped" if stopped else "failed" if state == "failed" else "running")
        for dag_id, run_id, state, stopped in runs
    ]
    under_way = select(Task.dag_id, Task.run_id, Task.map_index).join(Task.dag_run)
    unfinished = or_(Task.state.is_(None), Task.state.not_in(State.finished))
    mapped = under_way.where(DagRun.state == "running", Task.map_index >= 0, unfinished).distinct()
    found += [DagRunState(dag_id, indexed(run_id, index), "running") for dag_id, run_id, index in _execute(mapped)]
    return {folder_name(run.dag_id, run.run_id): run for run in found}


def find(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the Dag runs among the folders with these names: name to Dag id and run id."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    wanted = set(names)
    found = {folder_name(*ids): (ids[0], ids[1]) for ids in _execute(select(DagRun.dag_id, DagRun.run_id))}
    return {name: found[name] for name in wanted & set(found)}


def task_states(dag_id: str, run_id: str) -> dict[str, TaskState]:
    """Return the state of each task of a Dag run or of an index in it, by its task id."""
    from airflow.models.taskinstance import TaskInstance as Task
    from sqlalchemy import select

    columns = select(Task.task_id, Task.state, Task.start_date, Task.end_date, Task.try_number)
    plain_id, index = without_index(run_id)
    rows = _execute(columns.where(Task.dag_id == dag_id, Task.run_id == plain_id, Task.map_index == index))
    return {
        task: TaskState(str(state or ""), start and start.timestamp(), end and end.timestamp(), tries or 0)
        for task, state, start, end, tries in rows
    }


@lru_cache(maxsize=1 << 16)
def folder_name(dag_id: str, run_id: str) -> str:
    """Return the name of the folder of a Dag run."""
    return run_folder(dag_id, run_id).name


def _execute(statement: Any) -> list[Any]:
    # Imported here because every Airflow process loads the plugin, but only the API server may open the database.
    from airflow.utils.session import create_session

    with create_session(scoped=False) as session:
        return list(session.execute(statement))
