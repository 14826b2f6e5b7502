from __future__ import annotations

from tests.airflow_home import database, interpreter

__all__ = ["database", "interpreter"]
