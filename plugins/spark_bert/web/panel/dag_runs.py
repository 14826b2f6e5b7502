"""What Airflow's database says of Dag runs. Names of run folders stand for runs, because records are named by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from threading import Lock
from typing import Any

from sqlalchemy import and_, func, or_, select

from spark_bert.deployment.places import TOGETHER, indexed, run_folder, without_index

#: Changes from this time before the last known one are read again, because their transactions may have ended after it.
_OVERLAP = timedelta(minutes=1)
_ENDED = ("success", "failed")


@dataclass(frozen=True)
class DagRunState:
    """A Dag run, or an index in it of a mapped task group, as `indexed` names it."""

    dag_id: str
    run_id: str
    state: str  # running, success, stopped or failed


@dataclass(frozen=True)
class TaskState:
    """The state of an Airflow task, and when its last try started and ended, in seconds since 1970."""

    state: str
    started: float | None
    ended: float | None
    tries: int


class DagRuns:
    """All Dag runs by the names of their folders. They are read once, and then those that have changed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, DagRunState] = {}
        self._last: datetime | None = None

    def states(self) -> Mapping[str, DagRunState]:
        """Return the state of each Dag run, and of each index of a mapped task group that has not ended."""
        from airflow.models.dagrun import DagRun

        with self._lock:
            changed = self._read(since=self._last - _OVERLAP) if self._last else {}
            known = {**self._known, **changed}
            if len(known) != _execute(select(func.count(DagRun.id)))[0][0]:  # some were deleted, or none is known yet
                known = self._read()
            self._known = known
            return {**known, **_indices_under_way()}

    def _read(self, since: datetime | None = None) -> dict[str, DagRunState]:
        """Return the Dag runs that have changed since a moment, or all, and note when the last one has."""
        from airflow.models.dagrun import DagRun
        from airflow.models.taskinstance import TaskInstance as Task

        def has_task(state: str) -> Any:
            of_run = Task.dag_id == DagRun.dag_id, Task.run_id == DagRun.run_id
            return select(Task.id).where(*of_run, Task.state == state).exists()

        # Airflow skips what is left when a person marks a run as failed or its time is over, but not after a failure.
        stopped = and_(DagRun.state == "failed", has_task("skipped"), ~has_task("upstream_failed"))
        statement = select(DagRun.dag_id, DagRun.run_id, DagRun.state, stopped, DagRun.updated_at)
        rows = _execute(statement.where(DagRun.updated_at >= since) if since else statement)
        self._last = max((row[4] for row in rows), default=self._last)
        return {
            folder_name(dag_id, run_id): DagRunState(
                dag_id, run_id, "stopped" if stopped else state if state in _ENDED else "running"
            )
            for dag_id, run_id, state, stopped, _ in rows
        }


def _indices_under_way() -> dict[str, DagRunState]:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance as Task
    from airflow.utils.state import State

    under_way = select(Task.dag_id, Task.run_id, Task.map_index).join(Task.dag_run)
    unfinished = or_(Task.state.is_(None), Task.state.not_in(State.finished))
    of_own = Task.map_index >= 0, Task.task_id.not_in(TOGETHER)
    mapped = under_way.where(DagRun.state == "running", *of_own, unfinished).distinct()
    found = [DagRunState(dag_id, indexed(run_id, index), "running") for dag_id, run_id, index in _execute(mapped)]
    return {folder_name(run.dag_id, run.run_id): run for run in found}


def task_states(dag_id: str, run_id: str) -> dict[str, TaskState]:
    """Return the state of each task of a Dag run or of an index in it, by its task id.

    A task whose indices work together in one run is in the state of the first index that is still at work, if any.
    """
    from airflow.models.taskinstance import TaskInstance as Task

    columns = select(Task.task_id, Task.state, Task.start_date, Task.end_date, Task.try_number)
    plain_id, index = without_index(run_id)
    in_run = Task.map_index == index if index >= 0 else or_(Task.map_index < 0, Task.task_id.in_(TOGETHER))
    rows = _execute(columns.where(Task.dag_id == dag_id, Task.run_id == plain_id, in_run))
    rows.sort(key=lambda row: row[1] == "running")
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
