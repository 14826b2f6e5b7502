"""The deployment's choice whether the container of a stage outlives a shutdown of its worker."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from include.stages import BadInput

#: The variable with the choice: `keep` lets containers run, so that the next try attaches to them; `stop` stops them.
VARIABLE = "SPARK_BERT_ON_SHUTDOWN"
_STATE_TIMEOUT = 3.0  # seconds; Airflow kills the process of a task 5 seconds after its SIGTERM


def keeps_containers() -> bool:
    """Return whether containers outlive a shutdown of their worker.

    Raises:
        BadInput: if $SPARK_BERT_ON_SHUTDOWN is neither `stop` nor `keep`.
    """
    choice = os.environ.get(VARIABLE) or "stop"
    if choice not in ("stop", "keep"):
        raise BadInput(f"{VARIABLE}={choice!r} is not valid: write stop or keep")
    return choice == "keep"


def outlives_worker(ti: Any) -> bool:
    """Return whether the container keeps running after its Airflow task got a SIGTERM.

    It does if the deployment keeps containers and the SIGTERM does not come from a user who wants the Airflow task to
    end. An Airflow task that a user has cleared, marked or deleted is not in the state `running`. If the state is
    unknown, the worker has lost the connection to Airflow.

    Args:
        ti: the task instance.
    """
    return keeps_containers() and _state(ti) in ("running", "unknown")


def _state(ti: Any) -> str:
    """Return the state of the task instance in Airflow's database, or "unknown" if Airflow does not answer.

    The request is sent from another thread. The signal may have interrupted this thread in the middle of another
    request, whose answer has to be read before this one's, and which cannot be read while this thread waits.
    """
    pool = ThreadPoolExecutor(1)
    request = pool.submit(ti.get_task_states, ti.dag_id, ti.map_index, task_ids=[ti.task_id], run_ids=[ti.run_id])
    pool.shutdown(wait=False)
    try:
        states = request.result(_STATE_TIMEOUT)
    except Exception:
        return "unknown"
    return str(next(iter(states.get(ti.run_id, {}).values()), "deleted"))
