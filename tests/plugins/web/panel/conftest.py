"""What the tests of the panel share: an empty home, and questions to the routes in Airflow's real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

BASE = "/spark-bert/quality"
Ask = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home."""
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def ask(server: TestClient, viewer: dict[str, str]) -> Ask:
    """Ask a route for its JSON, as a user who may read everything unless other headers are given."""

    def get(route: str, headers: dict[str, str] = viewer, status: int = 200, **query: Any) -> Any:
        answer = server.get(f"{BASE}/api/{route}", params=query, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    return get


@pytest.fixture
def dag_run(database: None) -> Iterator[Callable[[str, str, str], None]]:
    """Let Airflow have a Dag run in some state."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from sqlalchemy import delete

    def make(dag_id: str, run_id: str, state: str) -> None:
        with create_session() as session:
            session.add(DagRun(dag_id=dag_id, run_id=run_id, run_type="manual", state=DagRunState(state)))

    yield make
    with create_session() as session:
        session.execute(delete(DagRun))


@pytest.fixture
def task(database: None) -> Iterator[Callable[..., None]]:
    """Let an Airflow task of a Dag run be in some state."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import delete, insert

    def make(dag_id: str, run_id: str, task_id: str, state: str, map_index: int = -1) -> None:
        names = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
        with create_session() as session:
            session.execute(insert(TaskInstance).values(id=uuid4(), state=state, pool="default_pool", **names))

    yield make
    with create_session() as session:
        session.execute(delete(TaskInstance))


@pytest.fixture
def only_retrain(server: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let users read the Dag retrain and no other."""
    from airflow.api_fastapi.app import get_auth_manager

    def may(*, method: str, user: Any, details: Any = None, **_: Any) -> bool:
        return method == "GET" and details is not None and details.id == "retrain"

    monkeypatch.setattr(type(get_auth_manager()), "is_authorized_dag", staticmethod(may))
