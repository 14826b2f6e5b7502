"""Print a login for Prometheus: `python -m spark_bert.telemetry.prometheus_login`, where Airflow's API server runs.

It is the bearer token, valid for 30 days, of a user who may look at everything and change nothing.
"""

from __future__ import annotations

import sys

_VALID = 30 * 24 * 3600  # seconds


def token() -> str:
    """Return the token. Raise TypeError if another auth manager is in use, which gives its users tokens itself."""
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    manager = create_auth_manager()
    if not isinstance(manager, SimpleAuthManager):
        raise TypeError(
            f"{type(manager).__name__} gives tokens itself: log in as a user who may see the cluster's activity"
        )
    user = SimpleAuthManagerUser(username="prometheus", role="viewer")
    return manager.generate_jwt(user, expiration_time_in_seconds=_VALID)


if __name__ == "__main__":
    try:
        print(token())
    except TypeError as error:
        sys.exit(f"error: {error}")
