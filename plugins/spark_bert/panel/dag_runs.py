"""What Airflow's database says of Dag runs. Names of run folders stand for runs, because records are named by them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from spark_bert.places import run_folder


@dataclass(frozen=True)
class DagRunState:
    """A Dag run that Airflow has not seen succeed: it is under way ("running"), or "failed"."""

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
    """Return the Dag runs that have not ended or have failed, by the names of their folders."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    rows = _execute(select(DagRun.dag_id, DagRun.run_id, DagRun.state).where(DagRun.state != "success"))
    return {
        folder_name(dag_id, run_id): DagRunState(dag_id, run_id, "failed" if state == "failed" else "running")
        for dag_id, run_id, state in rows
    }


def find(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the Dag runs among the folders with these names: name to Dag id and run id."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    wanted = set(names)
    found = {folder_name(*ids): (ids[0], ids[1]) for ids in _execute(select(DagRun.dag_id, DagRun.run_id))}
    return {name: found[name] for name in wanted & set(found)}


def task_states(dag_id: str, run_id: str) -> dict[str, TaskState]:
    """Return the state of each task of a Dag run, by its task id."""
    from airflow.models.taskinstance import TaskInstance as Task
    from sqlalchemy import select

    columns = select(Task.task_id, Task.state, Task.start_date, Task.end_date, Task.try_number)
    rows = _execute(columns.where(Task.dag_id == dag_id, Task.run_id == run_id))
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
