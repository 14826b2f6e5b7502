"""What retraining asks of the deployment's service: a trial before the promotion, and the rollout after it."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from include.artifacts import write_json
from include.runs import TRIAL
from include.stages import BadInput
from spark_bert.dag.pipeline import stage_task
from spark_bert.deployment.places import this_run
from spark_bert.operators.base import StageOperator
from spark_bert.retrain.retraining import retraining_experiment
from spark_bert.telemetry.notices import Notice

if TYPE_CHECKING:
    from httpx import AsyncClient

#: The variable with the address of the service that answers with the champion. Experiments cannot name the service,
#: because it belongs to the deployment.
SERVICE = "SPARK_BERT_SERVICE"
_TIMEOUT = 10  # seconds after which the service counts as not answering


def service() -> str:
    """Return the address of the service, without a slash at its end; "" if the deployment names none."""
    address = os.environ.get(SERVICE, "").rstrip("/")
    if address and not re.fullmatch(r"https?://[!-~]+", address):
        raise BadInput(
            f"{SERVICE}={address!r} is not an address: write one such as http://serve:8000, or nothing if no service "
            "answers with the champion"
        )
    return address


class ServiceTrigger(BaseTrigger):
    """Asks the service until there is an event, or the time is over.

    The time starts again after a restart of the triggerer, because the service may have been restarted with it.
    """

    def __init__(self, service: str, minutes: float, interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.service, self.minutes, self.interval = service, minutes, interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which the triggerer creates the trigger."""
        cls = type(self)
        names = inspect.signature(cls).parameters
        return f"{cls.__module__}.{cls.__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask at least once, and yield the event."""
        from httpx import AsyncClient  # only the triggerer needs it, and it would slow down the parsing of Dags

        end = time.monotonic() + 60 * self.minutes
        async with AsyncClient(timeout=_TIMEOUT) as client:
            while (event := await self.ask(client, time.monotonic() >= end)) is None:
                await asyncio.sleep(self.interval)
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def ask(self, client: AsyncClient, is_over: bool) -> dict[str, Any] | None:
        """Return the event, or None to ask again. If the time is over, this is the last question."""
        raise NotImplementedError


class Trial(BaseOperator):
    """Waits until the service has compared enough answers of the registered version with the champion's.

    The result has the figures, even if the time is over before there are enough. promote and the request for approval
    receive them; trial.json in the run's folder shows them to readers.
    """

    def execute(self, context: Context) -> None:
        """Let the triggerer wait, or skip the Airflow task if there is nothing to try out."""
        options, run = retraining_experiment(context).retraining, this_run(context)
        (run.folder / TRIAL).unlink(missing_ok=True)  # an earlier try may have tried out another version
        if not options.trial_texts:
            raise AirflowSkipException("no trial is asked for: retraining.trial_texts is 0")
        challenge = run.artifact("challenge").manifest.result
        if not challenge["champion"]:
            raise AirflowSkipException("there is no champion to compare with")
        if challenge["outcome"] == "undecided" and not options.approval:
            raise AirflowSkipException("the comparison is undecided and retraining.approval is off: the champion stays")
        if not service():
            raise AirflowFailException(
                f"retraining.trial_texts asks for a trial, but the deployment names no service: set {SERVICE} in "
                "Airflow's environment, or write retraining.trial_texts: 0"
            )
        entry, texts, minutes = run.artifact("register").manifest.result, options.trial_texts, options.trial_minutes
        trigger = TrialTrigger(service(), entry["model"], challenge["champion"], entry["version"], texts, minutes)
        self.defer(trigger=trigger, method_name="execute_complete")

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Write the figures to trial.json and return them."""
        self.log.info("version %(version)s: %(same)d of %(texts)d texts get the champion's answer", event)
        write_json(this_run(context).folder / TRIAL, event)
        return event


class TrialTrigger(ServiceTrigger):
    """Fires when the service has compared `texts` texts of the model, or when the time is over.

    Each process of the service counts from its own start, so the figures are those of the process that has compared the
    most texts: how many `texts`, how many of them got the `same` answer, how many were `skipped` because too many
    waited, and the mean `milliseconds` per request; None if there was none.
    """

    def __init__(
        self, service: str, model: str, champion: str, version: str, texts: int, minutes: float, interval: float = 10
    ) -> None:
        super().__init__(service, minutes, interval)
        self.model, self.champion, self.version, self.texts = model, champion, version, texts
        self.figures = self._figures({})

    async def ask(self, client: AsyncClient, is_over: bool) -> dict[str, Any] | None:
        """Read the service's metrics."""
        from httpx import HTTPError, InvalidURL

        try:
            response = await client.get(f"{self.service}/metrics")
            values = _values(response.raise_for_status().text, self.model)
            self.figures = max(self._figures(values), self.figures, key=itemgetter("texts"))
        except (HTTPError, InvalidURL, ValueError) as error:
            self.log.warning("%s has no figures of the trial: %r", self.service, error)
        self.log.info("%d of %d texts are compared", self.figures["texts"], self.texts)
        return self.figures if is_over or self.figures["texts"] >= self.texts else None

    def _figures(self, values: dict[tuple[str, str, str], float]) -> dict[str, Any]:

        def count(outcome: str) -> int:
            return int(values.get(("spark_bert_shadow_answers_total", self.version, outcome), 0))

        def milliseconds(version: str) -> float | None:
            total = values.get(("spark_bert_model_seconds_sum", version, ""), 0)
            requests = values.get(("spark_bert_model_seconds_count", version, ""))
            return round(1000 * total / requests, 2) if requests else None

        return {
            "service": self.service,
            "champion": self.champion,
            "version": self.version,
            "texts": count("same") + count("other"),
            "same": count("same"),
            "skipped": count("skipped"),
            "milliseconds": {"champion": milliseconds(self.champion), "challenger": milliseconds(self.version)},
        }


def _values(metrics: str, model: str) -> dict[tuple[str, str, str], float]:
    """Return the value of each sample by its name, version and outcome. Raise ValueError if another model answers."""
    from prometheus_client.parser import text_string_to_metric_families  # only the triggerer needs it

    samples = [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]
    used = ", ".join(sample.labels["name"] for sample in samples if sample.name == "spark_bert_model")
    if used != model:
        raise ValueError(f"it answers with {used or 'no model'}, not with {model}")
    return {
        (sample.name, sample.labels.get("version", ""), sample.labels.get("outcome", "")): sample.value
        for sample in samples
    }


class Rollout(BaseOperator):
    """Waits until the service answers with the version that promote has made the champion.

    If it does not in time, the Airflow task fails, and `undo` makes the previous version the champion again. The result
    has the service, the model, the version, and whether it was `taken_up`.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        service()  # refuses a wrong address when the Dag loads, not after the promotion

    def execute(self, context: Context) -> None:
        """Let the triggerer wait, or skip the Airflow task if there is nothing to wait for."""
        promotion: dict[str, Any] = context["ti"].xcom_pull(task_ids="promote") or {}
        if not promotion.get("promoted"):
            raise AirflowSkipException("the champion has not changed, so there is nothing to wait for")
        if not service():
            raise AirflowSkipException(f"{SERVICE} names no service to wait for")
        minutes = retraining_experiment(context).retraining.rollout_minutes
        trigger = RolloutTrigger(service(), promotion["model"], promotion["version"], minutes)
        self.defer(trigger=trigger, method_name="execute_complete")

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the result if the service has taken the version up; skip if it serves another model."""
        asked = {name: event[name] for name in ("service", "model", "version")}
        if event["outcome"] == "elsewhere":
            raise AirflowSkipException(
                f"{event['service']} does not serve {event['model']}: it says: {event['answer']}"
            )
        if event["outcome"] == "ready":
            return {**asked, "taken_up": True}
        context["ti"].xcom_push(key="return_value", value={**asked, "taken_up": False})
        raise AirflowFailException(
            f"{event['service']} has not answered with version {event['version']} of {event['model']} within "
            f"{event['minutes']:g} minutes, but says: {event['answer']}. The task rollback undoes the promotion. "
            "Look for the reason in the log of the service, remedy it, and clear the task promote"
        )


def undo() -> StageOperator:
    """Add the stage rollback, which undoes the promotion if the service has not taken the version up in time."""
    notice = Notice("rollback")
    return stage_task("rollback", trigger_rule="one_failed", pre_execute=_skip_unless_late, on_success_callback=notice)


def _skip_unless_late(context: Context) -> None:
    """Skip the rollback without proof that the service was asked for the version until the time was over."""
    result: dict[str, Any] = context["ti"].xcom_pull(task_ids="rollout") or {}
    if result.get("taken_up", True):
        raise AirflowSkipException("nothing to undo: the service has taken the version up, or was not asked for it")


class RolloutTrigger(ServiceTrigger):
    """Fires when the service answers with the version, when it serves another model, or when the time is over.

    The outcome is `ready`, `elsewhere`, or `late`. The event also has the arguments, and the service's last `answer`.
    """

    def __init__(self, service: str, model: str, version: str, minutes: float, interval: float = 5) -> None:
        super().__init__(service, minutes, interval)
        self.model, self.version, self.answer = model, version, ""

    async def ask(self, client: AsyncClient, is_over: bool) -> dict[str, Any] | None:
        """Ask for the version, and log every new answer."""
        outcome, answer = await self._look(client)
        if answer != self.answer:
            self.log.info("%s says: %s", self.service, answer)
            self.answer = answer
        if outcome == "waits" and not is_over:
            return None
        return {**self.serialize()[1], "outcome": "late" if outcome == "waits" else outcome, "answer": answer}

    async def _look(self, client: AsyncClient) -> tuple[str, str]:
        """Return the outcome, which is `waits` if there is none yet, and what the service says.

        `versions/VERSION/ready` would not do, because the service may have tried the version out before. Another server
        may have a page for every path, or for none, so only the service's own answers count.
        """
        from httpx import HTTPError, InvalidURL

        try:
            response = await client.get(f"{self.service}/v2/models/{quote(self.model, safe='')}")
        except (HTTPError, InvalidURL) as error:
            return "waits", f"nothing ({type(error).__name__}: {error})"
        with suppress(ValueError):
            value = response.json()
            if response.status_code == 200 and isinstance(value, dict) and isinstance(value.get("versions"), list):
                used = ", ".join(map(str, value["versions"]))
                return "ready" if used == self.version else "waits", f"version {used} answers"
            if isinstance(value, dict) and "error" in value:
                outcome = "elsewhere" if response.status_code == 404 else "waits"
                return outcome, f"{response.status_code}: {value['error']!s:.200}"
        return "waits", f"{response.status_code}: {response.text:.200}"
