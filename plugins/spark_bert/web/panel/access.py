"""Who may see which run: whoever may read the Dag that made it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request

from spark_bert.web.files import current_user, require_dag_access

#: Says whether a user may read the runs of a Dag.
MayRead = Callable[[str], bool]


def may_read(request: Request, user: Annotated[Any, Depends(current_user)]) -> MayRead:
    """Return a function that says whether the user who is logged in may read the runs of a Dag; 401 without a login.

    A run that no Dag made has the Dag id "". It belongs to nobody that Airflow knows, so only those see it who may
    read all Dags.
    """
    answers: dict[str, bool] = {}

    def ask(dag_id: str) -> bool:
        if dag_id not in answers:
            answers[dag_id] = _ask(dag_id, request, user)
        return answers[dag_id]

    return ask


def _ask(dag_id: str, request: Request, user: Any) -> bool:
    from airflow.api_fastapi.app import get_auth_manager

    if not dag_id:
        return bool(get_auth_manager().is_authorized_dag(method="GET", user=user))
    try:
        require_dag_access(dag_id, request, user)
    except HTTPException:
        return False
    return True
