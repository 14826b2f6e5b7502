"""An Airflow of the tests' own: a fresh AIRFLOW_HOME with its database, made once a session.

Airflow reads its configuration when it is first imported, so this module must be imported before it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

if TYPE_CHECKING:
    from airflow.sdk import DAG

ROOT = Path(__file__).parents[1]
_FOLDER = tempfile.TemporaryDirectory(prefix="airflow-home-")
HOME = Path(_FOLDER.name)

os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-these-tests-0123456789-0123456789-0123456789-0123456789",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
    "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(HOME / "logs"),
    "PYTHONPATH": str(ROOT),
    "SPARK_BERT_HOME": str(HOME / "work"),
}


def airflow(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Airflow's command line in the home of the tests."""
    command = [sys.executable, "-m", "airflow", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment, timeout=300)


@cache
def _migrate() -> None:
    done = airflow("db", "migrate")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def database() -> None:
    """Airflow's database, ready."""
    _migrate()


def store(dag: DAG) -> Any:
    """Store a Dag in the database, as the Dag processor does, and return it as the scheduler and the API see it."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.models.dag import DagModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG
    from airflow.utils.session import create_session

    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)  # type: ignore[no-untyped-call]
        session.flush()
        session.merge(DagModel(dag_id=dag.dag_id, bundle_name="dags-folder"))  # type: ignore[no-untyped-call]
        session.flush()
        SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(dag), bundle_name="dags-folder", session=session)
    return DagSerialization.from_dict(DagSerialization.to_dict(dag))


@pytest.fixture(scope="session")
def server(database: None) -> Iterator[TestClient]:
    """Airflow's real API server, plugin and auth manager included."""
    from airflow.api_fastapi.app import cached_app

    with TestClient(cached_app(), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="session")
def viewer(server: TestClient) -> dict[str, str]:
    """The headers of a user who may read everything."""
    return login("viewer")


def login(role: str | None) -> dict[str, str]:
    """Return the headers of a user with the role."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="somebody", role=role))
    return {"Authorization": f"Bearer {token}"}


Interpreter = Callable[[str], Path]


@pytest.fixture
def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Interpreter:
    """Make a script stand in for the task environment's interpreter: `-m tasks STAGE ...` are its arguments."""

    def make(body: str) -> Path:
        path = tmp_path / "python"
        start = "import os, signal, subprocess, sys, time\nstage = sys.argv[3] if len(sys.argv) > 3 else ''\n"
        path.write_text(f"#!{sys.executable} -S\n{start}{body}\n")
        path.chmod(0o755)
        monkeypatch.setenv("SPARK_BERT_TASKS_PYTHON", str(path))
        return path

    return make
