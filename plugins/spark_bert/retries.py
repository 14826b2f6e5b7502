"""How often a task is tried again, and when: by what has failed."""

from __future__ import annotations

import random
from datetime import timedelta

from airflow.sdk import Context, RetryDecision, RetryPolicy
from airflow.sdk.exceptions import AirflowException

#: Retries in all, those after a lost worker included, of which no policy hears.
RETRIES = 6
#: Of these, retries after a try that has failed by itself.
AFTER_FAILURES = 2
_FIRST, _UNREACHABLE_FIRST, _LONGEST = 30.0, 15.0, 90.0  # seconds


class Unreachable(AirflowException):
    """What runs the stages, a Docker daemon or a Kubernetes cluster, does not answer."""


class Interrupted(AirflowException):
    """A stage was stopped from outside, or lost sight of, and goes on in the next try."""


class StageRetries(RetryPolicy):
    """Retries with a growing delay. An engine that does not answer is given longer than a stage that fails.

    A stage that crashes gets AFTER_FAILURES more tries. While nothing can be started, all RETRIES are used, which
    takes more than six minutes: a machine restarts in less. An interruption, as by a new release of Airflow, is no
    failure of the stage. The delays vary at random, so that tasks that have failed together do not come back together.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """What Airflow shall do after this exception. It never grants more tries than the task has."""
        if isinstance(exception, Unreachable):
            before = max(RETRIES - 1 - (max_tries - try_number), 0)
            return RetryDecision.retry(_delay(_UNREACHABLE_FIRST, before), "nothing answers that could run the stage")
        if isinstance(exception, Interrupted):
            return RetryDecision.retry(_delay(_FIRST, 0), "the stage was interrupted")
        failures = _count_failure(max_tries, context)
        if failures > AFTER_FAILURES:
            return RetryDecision.fail(f"it has failed {failures} times")
        return RetryDecision.retry(_delay(_FIRST, failures - 1), f"failure {failures} of {AFTER_FAILURES + 1}")


def _count_failure(max_tries: int, context: Context | None) -> int:
    """How often the task has failed by itself since it was last cleared, this time included.

    A clear changes the number of tries, or, where the task runs, only the run's count of clears.
    """
    store = context["task_state_store"] if context else None
    if context is None or store is None:
        return 1
    key = f"failures.{max_tries}.{context['dag_run'].clear_number}"
    before = store.get(key)
    failures = before + 1 if isinstance(before, int) else 1
    store.set(key, failures)
    return failures


def _delay(first: float, before: int) -> timedelta:
    return timedelta(seconds=min(first * 2**before, _LONGEST) * random.uniform(1, 1.5))
