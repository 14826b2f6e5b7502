"""Notices to people: what happened in a few lines, by mail and to a webhook, where connections for them exist."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote

from airflow.sdk import BaseNotifier, Connection, Context
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException

from spark_bert.channels import Text, mail, webhook
from spark_bert.operators.base import Refused

#: Connection to how it is sent through.
CHANNELS: dict[str, Callable[[Connection, Text], None]] = {"spark_bert_smtp": mail, "spark_bert_webhook": webhook}


class Notice(BaseNotifier):
    """Tells people, once for each of CHANNELS that exists as a connection; one that cannot be told costs a warning.

    Args:
        event: what calls it: a task's on_failure_callback ("failure"), on_success_callback of promote ("promotion") and
            of ingest ("ingest": news only where it has set files aside), the notifiers of an ApprovalOperator
            ("approval"), or a DeadlineAlert ("deadline"), as `AsyncCallback(Notice, {"event": "deadline"})` or with
            SyncCallback.
        context: given by Airflow where it awaits the notifier.
    """

    def __init__(
        self, event: Literal["failure", "promotion", "ingest", "approval", "deadline"], context: Context | None = None
    ) -> None:
        super().__init__(context)
        self.event = event

    def notify(self, context: Context) -> None:
        """Send it. Never raises: an approval would fail with it."""
        try:
            text = _TEXTS[self.event](context)
        except Exception as error:
            self.log.warning("no notice of this %s, for it has no text: %r", self.event, error)
            return
        if text is None:
            return
        for name, send in CHANNELS.items():
            try:
                send(Connection.get(name), text)
            except AirflowNotFoundException:
                self.log.debug("no connection %s, so no notice there", name)
            except Exception as error:
                self.log.warning(
                    "no notice through the connection %s (%s: %s): mend or delete it, as docs/DEPLOY.md says",
                    name, type(error).__name__, error,
                )  # fmt: skip

    async def async_notify(self, context: Context) -> None:
        """The same in a thread of its own, for the triggerer's loop must not wait for a server."""
        await asyncio.to_thread(self.notify, context)


def _failure(context: Context) -> Text:
    """A refusal or a failure; a task whose process was killed has no exception."""
    error = context.get("exception")
    how = "refused" if isinstance(error, Refused) else "failed"
    return _of_task(context, how, str(error) if error else "The log says why.")


def _promotion(context: Context) -> Text:
    """What has become of a version, of promote's result."""
    ti = context["ti"]
    result: dict[str, Any] = ti.xcom_pull(task_ids=ti.task_id)
    how = "promoted" if result["promoted"] else result["decision"]
    champion = f"The champion is version {result['champion']}." if result["champion"] else "There is no champion."
    return _of_task(context, f"version {result['version']} {how}", result["reason"], champion)


def _ingest(context: Context) -> Text | None:
    """The malformed files that ingest has set aside, of its result; None where there are none."""
    ti = context["ti"]
    refused: dict[str, str] = ti.xcom_pull(task_ids=ti.task_id)["refused"]
    if not refused:
        return None
    files = "1 file" if len(refused) == 1 else f"{len(refused)} files"
    remedy = "The others were taken in. Mend what lies in the drop folder's folder refused, and put it back."
    return _of_task(context, f"{files} set aside", *refused.values(), remedy)


def _approval(context: Context) -> Text:
    """A question to a person, in the words of the operator."""
    return _of_task(context, "waits for a decision", getattr(context["task"], "subject", ""))


def _of_task(context: Context, what: str, *lines: str) -> Text:
    ti = context["ti"]
    where = f"Dag {ti.dag_id}, run {ti.run_id}, task {ti.task_id}"
    return Text(f"{ti.dag_id}: {ti.task_id}: {what}", (*lines, where), ti.log_url)


def _deadline(context: Context) -> Text:
    """A run that takes too long. Airflow hands its REST API's record of the run, and no task."""
    run, deadline = map(dict, (context["dag_run"], context["deadline"]))  # type: ignore[typeddict-item]
    waited = _time(deadline["deadline_time"]) - _time(run["queued_at"])
    dag_id, run_id = run["dag_id"], run["dag_run_id"]
    hours = f"{round(waited / timedelta(hours=1), 2):g} h"
    home = conf.get("api", "base_url", fallback="http://localhost:8080").rstrip("/")
    return Text(
        f"{dag_id}: deadline missed",
        (f"{dag_id}'s run {run_id} has not ended {hours} after it was queued.",),
        f"{home}/dags/{dag_id}/runs/{quote(run_id)}",
    )


def _time(value: datetime | str) -> datetime:
    """A time, which the triggerer gets as such and an executor as text."""
    return datetime.fromisoformat(str(value))


_TEXTS: dict[str, Callable[[Context], Text | None]] = {
    "failure": _failure,
    "promotion": _promotion,
    "ingest": _ingest,
    "approval": _approval,
    "deadline": _deadline,
}
