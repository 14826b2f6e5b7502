from __future__ import annotations

from tests.airflow_home import database, interpreter, server, viewer

__all__ = ["database", "interpreter", "server", "viewer"]
