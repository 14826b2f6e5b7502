"""Retries: how often, after what, and how long they last together."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import BaseOperator, Context, RetryAction, RetryDecision
from airflow.sdk.exceptions import AirflowFailException

from include.stages import BadInput, ExitCode
from spark_bert.dag.pipeline import DEFAULTS
from spark_bert.operators.base import Outcome, failure
from spark_bert.operators.failures import RETRIES, Interrupted, StageRetries, Unreachable
from spark_bert.retrain.approval import PromotionApproval
from spark_bert.retrain.service import Rollout, Trial


class Task:
    """A task whose tries fail; Airflow grants it RETRIES more than the first."""

    def __init__(self) -> None:
        self.attempt, self.max_tries, self.clears = 1, RETRIES, 0
        self.store: dict[str, Any] = {}

    def set(self, key: str, value: Any) -> None:
        self.store[key] = value

    def get(self, key: str) -> Any:
        return self.store.get(key)

    def fails(self, error: Exception) -> RetryDecision:
        dag_run = SimpleNamespace(clear_number=self.clears)
        context = cast(Context, {"task_state_store": self, "dag_run": dag_run, "ti": self})
        decision = StageRetries().evaluate(error, self.attempt, self.max_tries, context)
        self.attempt += 1
        return decision

    def clear(self, *, running: bool) -> None:
        self.clears += 1
        if not running:
            self.max_tries = self.attempt - 1 + RETRIES


def seconds(decision: RetryDecision) -> float:
    assert decision.action == RetryAction.RETRY and decision.retry_delay
    return decision.retry_delay.total_seconds()


CRASH = failure("train", Outcome(1, "", "a traceback"))


def test_an_engine_that_does_not_answer_is_waited_for_more_than_five_minutes() -> None:
    task = Task()
    delays = [seconds(task.fails(Unreachable("no Docker daemon answers"))) for _ in range(RETRIES)]
    assert sum(delays) > 5 * 60 and max(delays) <= 135
    assert delays[0] < 30 and delays[3] >= 2 * delays[0]


def test_tasks_that_fail_together_do_not_come_back_together() -> None:
    assert len({seconds(Task().fails(Unreachable("x"))) for _ in range(20)}) > 10


def test_a_stage_that_crashes_is_tried_again_twice() -> None:
    task = Task()
    assert 30 <= seconds(task.fails(CRASH)) <= 45 and 60 <= seconds(task.fails(CRASH)) <= 90
    assert task.fails(CRASH).action == RetryAction.FAIL


def test_what_is_not_the_stages_fault_takes_none_of_its_tries() -> None:
    task = Task()
    stopped = failure("train", Outcome(ExitCode.STOPPED, "", "stopped"))
    assert isinstance(stopped, Interrupted)
    for error in (Unreachable("x"), stopped, CRASH, Unreachable("x"), CRASH):
        assert seconds(task.fails(error)) > 0
    assert task.fails(CRASH).action == RetryAction.FAIL


@pytest.mark.parametrize("running", [True, False])
def test_a_cleared_task_has_all_its_tries_again(running: bool) -> None:
    task = Task()
    for _ in range(3):
        decision = task.fails(CRASH)
    assert decision.action == RetryAction.FAIL
    task.clear(running=running)
    assert seconds(task.fails(CRASH)) < seconds(task.fails(CRASH))
    assert seconds(Task().fails(Unreachable("x"))) <= 22.5


def test_airflow_itself_may_be_away_for_a_quarter_of_an_hour() -> None:
    """The scheduler alone decides then: a try that finds no API server ends before the policy could be asked."""
    task = BaseOperator(task_id="train", **DEFAULTS)
    now = datetime.now(UTC)

    def delay(attempt: int) -> float:
        instance: Any = SimpleNamespace(
            retry_delay_override=None, task=task, try_number=attempt, end_date=now,
            dag_id="finetune", task_id="train", logical_date=now,
        )  # fmt: skip
        due: datetime = TaskInstance.next_retry_datetime(instance)  # type: ignore[no-untyped-call]
        return (due - now).total_seconds()

    delays = [delay(attempt) for attempt in range(1, RETRIES + 1)]
    assert sum(delays) > 15 * 60 and delays[0] <= 60 and max(delays) == 5 * 60


@pytest.mark.parametrize("code", [ExitCode.BAD_INPUT, ExitCode.GATE_FAILED])
def test_bad_input_and_a_failed_gate_are_never_asked_about(code: ExitCode) -> None:
    """Airflow ends a task at once on this exception, whatever the policy would say."""
    assert isinstance(failure("gate", Outcome(code, "", "too low")), AirflowFailException)


@pytest.mark.parametrize("task", [Rollout(task_id="rollout"), Trial(task_id="trial"), PromotionApproval(task_id="ask")])
def test_bad_input_of_any_task_is_never_tried_again(task: BaseOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one that is no stage: its form names no experiment."""
    now: Any = {"params": {"experiment": "movie"}, "ti": SimpleNamespace(xcom_pull=lambda task_ids: {"promoted": True})}
    monkeypatch.setenv("SPARK_BERT_SERVICE", "http://127.0.0.1:1")
    with pytest.raises(BadInput, match="unknown experiment 'movie'") as error:
        type(task).execute.__wrapped__(task, now)  # type: ignore[attr-defined]
    assert Task().fails(error.value).action == RetryAction.FAIL
