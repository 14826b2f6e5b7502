"""Notices: short messages about events of a run, by mail and to a webhook, if connections for them exist."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote

from airflow.sdk import BaseNotifier, Connection, Context
from airflow.sdk.configuration import conf
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.exceptions import AirflowNotFoundException

from spark_bert.operators.base import Refused
from spark_bert.telemetry.channels import Text, mail, webhook

#: The id of each connection, and the function that sends a notice through it.
CHANNELS: dict[str, Callable[[Connection, Text], None]] = {"spark_bert_smtp": mail, "spark_bert_webhook": webhook}
#: The largest number of windows that a notice describes.
_WINDOWS = 10


class Notice(BaseNotifier):
    """Sends a notice through every connection of CHANNELS that exists, and logs a warning if that fails.

    Args:
        event: the event that the notice is about:

            * `failure`, for the on_failure_callback of an Airflow task;
            * `promotion`, for the on_success_callback of promote;
            * `rollback`, for the on_success_callback of rollback;
            * `ingest`, for the on_success_callback of ingest. Nothing is sent if ingest has set no files aside;
            * `drift`, for the on_success_callback of drifted;
            * `approval`, for the notifiers of an ApprovalOperator;
            * `deadline`, for the callback of a DeadlineAlert: see `late_after`.
        context: Airflow passes it when it awaits the notifier.
    """

    def __init__(
        self,
        event: Literal["failure", "promotion", "rollback", "ingest", "drift", "approval", "deadline"],
        context: Context | None = None,
    ) -> None:
        super().__init__(context)
        self.event = event

    def notify(self, context: Context) -> None:
        """Send the notice. Errors are only logged, because an error in a notifier would make an approval fail."""
        try:
            text = _TEXTS[self.event](context)
        except Exception as error:
            self.log.warning("no notice of this %s was sent, because its text could not be made: %r", self.event, error)
            return
        if text is None:
            return
        for name, send in CHANNELS.items():
            try:
                send(Connection.get(name), text)
            except AirflowNotFoundException:
                self.log.debug("no notice was sent through %s, because this connection does not exist", name)
            except Exception as error:
                self.log.warning(
                    "no notice was sent through the connection %s (%s: %s): correct or delete it, "
                    "as docs/DEPLOY.md describes",
                    name, type(error).__name__, error,
                )  # fmt: skip

    async def async_notify(self, context: Context) -> None:
        """Send the notice from another thread, because waiting for a server would block the triggerer's event loop."""
        await asyncio.to_thread(self.notify, context)


def late_after(time: timedelta) -> DeadlineAlert:
    """Send a notice if a run has not ended so long after it was queued."""
    notice = AsyncCallback(Notice, {"event": "deadline"})
    return DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=time, callback=notice)


def _failure(context: Context) -> Text:
    """Report a refusal or a failure. The context of an Airflow task whose process was killed has no exception."""
    error = context.get("exception")
    how = "refused" if isinstance(error, Refused) else "failed"
    return _of_task(context, how, str(error) if error else "See the log for the reason.")


def _promotion(context: Context) -> Text:
    """Report what the result of promote says about the version."""
    ti = context["ti"]
    result: dict[str, Any] = ti.xcom_pull(task_ids=ti.task_id)
    how = "promoted" if result["promoted"] else result["decision"]
    champion = f"The champion is version {result['champion']}." if result["champion"] else "There is no champion."
    return _of_task(context, f"version {result['version']} {how}", result["reason"], champion)


def _rollback(context: Context) -> Text:
    """Report the two versions in the result of rollback."""
    ti = context["ti"]
    result: dict[str, Any] = ti.xcom_pull(task_ids=ti.task_id)
    left = f"Version {result['left']} of {result['model']} is no longer the champion."
    return _of_task(context, f"version {result['version']} is the champion again", left)


def _ingest(context: Context) -> Text | None:
    """Report the malformed files in the result of ingest. Return None if there are none."""
    ti = context["ti"]
    refused: dict[str, str] = ti.xcom_pull(task_ids=ti.task_id)["refused"]
    if not refused:
        return None
    files = "1 file" if len(refused) == 1 else f"{len(refused)} files"
    remedy = (
        "The other files were ingested. Correct these files in the drop folder's folder refused, and move them back."
    )
    return _of_task(context, f"{files} set aside", *refused.values(), remedy)


def _drift(context: Context) -> Text:
    """Report the windows in the result of drifted, the newest ones if there are many."""
    ti = context["ti"]
    result: dict[str, Any] = ti.xcom_pull(task_ids=ti.task_id)
    windows: list[dict[str, Any]] = result["drift"]
    count = "1 window" if len(windows) == 1 else f"{len(windows)} windows"
    told = [
        f"{window['window']} ({window['rows']} rows): {'; '.join(window['reasons'])}" for window in windows[-_WINDOWS:]
    ]
    left_out = [f"The last {_WINDOWS} of them:"] if len(windows) > _WINDOWS else []
    return _of_task(context, f"{count} of the stream {result['stream']}", *left_out, *told)


def _approval(context: Context) -> Text:
    """Report that the operator waits for a person's answer."""
    return _of_task(context, "waits for a decision", getattr(context["task"], "subject", ""))


def _of_task(context: Context, what: str, *lines: str) -> Text:
    ti = context["ti"]
    where = f"Dag {ti.dag_id}, run {ti.run_id}, task {ti.task_id}"
    return Text(f"{ti.dag_id}: {ti.task_id}: {what}", (*lines, where), ti.log_url)


def _deadline(context: Context) -> Text:
    """Report a run that takes too long. Airflow passes the run as its REST API describes it, and no task instance."""
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
    """Return the time as a datetime. The triggerer passes a datetime, an executor passes text."""
    return datetime.fromisoformat(str(value))


_TEXTS: dict[str, Callable[[Context], Text | None]] = {
    "failure": _failure,
    "promotion": _promotion,
    "rollback": _rollback,
    "ingest": _ingest,
    "drift": _drift,
    "approval": _approval,
    "deadline": _deadline,
}
