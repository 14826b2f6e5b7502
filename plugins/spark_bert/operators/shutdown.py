"""What becomes of a stage's container when its worker is shut down: the deployment's choice."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from include.stages import BadInput

#: Where a deployment says that containers go on (keep), for the next try to attach to, or are stopped (stop).
VARIABLE = "SPARK_BERT_ON_SHUTDOWN"
_PATIENCE = 3.0  # seconds; Airflow kills a task 5 seconds after its SIGTERM


def keeps() -> bool:
    """Whether containers outlive a shutdown of their worker. Raises BadInput for a value that means nothing."""
    choice = os.environ.get(VARIABLE) or "stop"
    if choice not in ("stop", "keep"):
        raise BadInput(f"{VARIABLE}={choice!r}: write stop or keep")
    return choice == "keep"


def outlives_worker(ti: Any) -> bool:
    """Whether the container of a task that got a SIGTERM goes on.

    It does where the deployment keeps containers and nobody has asked Airflow to end the task: the worker is shut down,
    or has lost Airflow. A task that was cleared, marked or deleted is in another state than running.
    """
    return keeps() and _state(ti) in ("running", "unknown")


def _state(ti: Any) -> str:
    """The task's state, "unknown" when Airflow does not say.

    It is asked for in a thread of its own: the signal may have come in the middle of another question, whose answer has
    to be read first, and cannot be while this one waits.
    """
    pool = ThreadPoolExecutor(1)
    asked = pool.submit(ti.get_task_states, ti.dag_id, ti.map_index, task_ids=[ti.task_id], run_ids=[ti.run_id])
    pool.shutdown(wait=False)
    try:
        states = asked.result(_PATIENCE)
    except Exception:
        return "unknown"
    return str(next(iter(states.get(ti.run_id, {}).values()), "deleted"))
