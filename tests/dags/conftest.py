from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from tests.airflow_home import database, interpreter

if TYPE_CHECKING:
    from airflow.sdk import DAG

__all__ = ["database", "interpreter"]


@pytest.fixture(scope="module")
def dag(request: pytest.FixtureRequest) -> DAG:
    """The Dag that the module of tests is named after."""
    found: DAG = importlib.import_module(f"dags.{request.path.stem.removeprefix('test_')}").dag
    return found
