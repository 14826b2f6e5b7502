"""How a stage can fail besides bad input, and the policy that says whether and when to retry."""

from __future__ import annotations

import random
from datetime import timedelta

from airflow.sdk import Context, RetryDecision, RetryPolicy
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from include.stages import BadInput

#: All retries of an Airflow task, including those after a lost worker, for which Airflow does not consult the policy.
RETRIES = 6
#: The part of them that follows a failure of the stage itself.
FAILURE_RETRIES = 2
_FIRST_DELAY, _FIRST_UNREACHABLE_DELAY, _LONGEST_DELAY = 30.0, 15.0, 90.0  # seconds


class Unreachable(AirflowException):
    """The Docker daemon or the Kubernetes cluster that runs the stages does not answer."""


class Refused(AirflowFailException):
    """A stage has refused to go on because of its verdict, for example on the metrics, a comparison or drift."""


class Interrupted(AirflowException):
    """A stage was stopped from outside, or the connection to it was lost. The next try continues it."""


class StageRetries(RetryPolicy):
    """Retries with growing delays, and more often after an unreachable engine than after a failed stage.

    All RETRIES take more than six minutes, enough for a machine to restart. The delays are random within limits, so
    that tasks that have failed together do not all retry at the same moment.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Return whether and when to retry after this exception. Airflow enforces the limit on all tries itself."""
        if isinstance(exception, BadInput):
            return RetryDecision.fail("the input or the configuration is wrong")
        if isinstance(exception, Unreachable):
            before = max(RETRIES - 1 - (max_tries - try_number), 0)
            return RetryDecision.retry(
                _delay(_FIRST_UNREACHABLE_DELAY, before), "the engine that runs the stages is unreachable"
            )
        if isinstance(exception, Interrupted):
            return RetryDecision.retry(_delay(_FIRST_DELAY, 0), "the stage was interrupted")
        failures = _count_failure(context)
        if failures > FAILURE_RETRIES:
            return RetryDecision.fail(f"the stage has failed {failures} times")
        return RetryDecision.retry(
            _delay(_FIRST_DELAY, failures - 1), f"failure {failures} of at most {FAILURE_RETRIES + 1}"
        )


def generation(context: Context) -> str:
    """Return a text that is the same for all retries of an Airflow task and changes when the task is cleared.

    It takes two numbers to recognize every clear. Clearing raises the maximum number of tries unless the Airflow task
    is running, and it raises the Dag run's number of clears unless the user keeps the state of the run.
    """
    return f"{context['ti'].max_tries}.{context['dag_run'].clear_number}"


def _count_failure(context: Context | None) -> int:
    """Return how often the stage has failed since its Airflow task was last cleared, including this failure."""
    store = context["task_state_store"] if context else None
    if context is None or store is None:
        return 1
    key = f"failures.{generation(context)}"
    before = store.get(key)
    failures = before + 1 if isinstance(before, int) else 1
    store.set(key, failures)
    return failures


def _delay(first: float, before: int) -> timedelta:
    return timedelta(seconds=min(first * 2**before, _LONGEST_DELAY) * random.uniform(1, 1.5))
