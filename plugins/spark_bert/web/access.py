"""Who may see what: a run is shown to users who may read the Dag that made it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

# Airflow's own modules are imported inside of functions: every process loads the plugin, but only the API server has
# imported them.

#: Says whether a user may read the runs of a Dag.
MayRead = Callable[[str], bool]
_bearer = HTTPBearer(auto_error=False)


async def current_user(
    request: Request, token: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Any:
    """Return the user who is logged in, or answer 401. Airflow itself does not protect a plugin's routes."""
    from airflow.api_fastapi.core_api.security import get_user

    return await get_user(request, None, token)


def require_dag_access(dag_id: str, request: Request, user: Annotated[Any, Depends(current_user)]) -> None:
    """Answer 403 to a user who may not read the Dag."""
    from airflow.api_fastapi.core_api.security import requires_access_dag

    requires_access_dag("GET", param_dag_id=dag_id)(request, user)


def may_read(request: Request, user: Annotated[Any, Depends(current_user)]) -> MayRead:
    """Return a function that says whether the user who is logged in may read the runs of a Dag."""
    from airflow.api_fastapi.app import get_auth_manager

    @cache
    def may(dag_id: str) -> bool:
        if not dag_id:  # no Dag made the run, so only users who may read all Dags see it
            return bool(get_auth_manager().is_authorized_dag(method="GET", user=user))
        try:
            require_dag_access(dag_id, request, user)
        except HTTPException:
            return False
        return True

    return may
