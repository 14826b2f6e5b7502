"""The rollout of a promoted version: waiting until the service answers with it, and undoing the promotion if not."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from spark_bert.dag.pipeline import stage_task
from spark_bert.operators.base import StageOperator
from spark_bert.retrain.retraining import retraining_experiment
from spark_bert.retrain.service import SERVICE, ServiceTrigger, service
from spark_bert.telemetry.notices import Notice

if TYPE_CHECKING:
    from httpx import AsyncClient


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
