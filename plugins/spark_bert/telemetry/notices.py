"""Notices: short messages about events of a run, by mail and to a webhook, if connections for them exist."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from html import escape
from typing import Any, Literal, NamedTuple
from urllib.parse import quote
from urllib.request import Request, urlopen

from airflow.providers.smtp.hooks.smtp import SmtpHook
from airflow.sdk import BaseNotifier, Connection, Context
from airflow.sdk.configuration import conf
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.exceptions import AirflowNotFoundException

from spark_bert.operators.failures import Refused

_TIMEOUT = 10  # seconds after which a webhook's server counts as not answering
_WINDOWS = 10  # the most windows that a notice describes


class Text(NamedTuple):
    """The content of a notice, in plain text, and the address of the page with the details."""

    subject: str
    lines: tuple[str, ...]
    link: str


class Notice(BaseNotifier):
    """Sends a notice about an event through every connection of CHANNELS that exists.

    `failure` is for an on_failure_callback; `promotion`, `rollback`, `ingest` and `drift` are for the
    on_success_callback of such a task, `approval` for the notifiers of an ApprovalOperator, `deadline` for late_after.
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
        """Send the notice from another thread, so that it does not block the triggerer's event loop."""
        await asyncio.to_thread(self.notify, context)


def late_after(time: timedelta) -> DeadlineAlert:
    """Send a notice if a run has not ended a certain time after it was queued."""
    notice = AsyncCallback(Notice, {"event": "deadline"})
    return DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=time, callback=notice)


def _failure(context: Context) -> Text:
    """Report a refusal or a failure. The context of an Airflow task whose process was killed has no exception."""
    error = context.get("exception")
    how = "refused" if isinstance(error, Refused) else "failed"
    return _of_task(context, how, str(error) if error else "See the log for the reason.")


def _promotion(context: Context) -> Text:
    result = _result(context)
    how = "promoted" if result["promoted"] else result["decision"]
    champion = f"The champion is version {result['champion']}." if result["champion"] else "There is no champion."
    return _of_task(context, f"version {result['version']} {how}", result["reason"], champion)


def _rollback(context: Context) -> Text:
    result = _result(context)
    left = f"Version {result['left']} of {result['model']} is no longer the champion."
    return _of_task(context, f"version {result['version']} is the champion again", left)


def _ingest(context: Context) -> Text | None:
    refused: dict[str, str] = _result(context)["refused"]
    if not refused:
        return None
    files = "1 file" if len(refused) == 1 else f"{len(refused)} files"
    remedy = (
        "The other files were ingested. Correct these files in the drop folder's folder refused, and move them back."
    )
    return _of_task(context, f"{files} set aside", *refused.values(), remedy)


def _drift(context: Context) -> Text:
    result = _result(context)
    windows: list[dict[str, Any]] = result["drift"]
    count = "1 window" if len(windows) == 1 else f"{len(windows)} windows"
    told = [
        f"{window['window']} ({window['rows']} rows): {'; '.join(window['reasons'])}" for window in windows[-_WINDOWS:]
    ]
    left_out = [f"The last {_WINDOWS} of them:"] if len(windows) > _WINDOWS else []
    return _of_task(context, f"{count} of the stream {result['stream']}", *left_out, *told)


def _approval(context: Context) -> Text:
    return _of_task(context, "waits for a decision", getattr(context["task"], "subject", ""))


def _result(context: Context) -> dict[str, Any]:
    ti = context["ti"]
    result: dict[str, Any] = ti.xcom_pull(task_ids=ti.task_id)
    return result


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
    """Return the time as a datetime. The triggerer passes one, and an executor passes text."""
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


def _mail(connection: Connection, text: Text) -> None:
    to = connection.extra_dejson.get("to")
    if not to:
        raise ValueError('its extra has no "to": write the addresses of the recipients there, separated by commas')
    link = f'<a href="{escape(text.link)}">{escape(text.link)}</a>'
    html = "<br>\n".join([*(escape(line).replace("\n", "<br>\n") for line in text.lines), link])
    with SmtpHook(connection.conn_id) as hook:
        hook.send_email_smtp(to=to, subject=text.subject, html_content=html)


def _webhook(connection: Connection, text: Text) -> None:
    """Post `{"text": ...}` to the webhook.

    Its address is the connection's password, because all who know it can post, and no error shows it. The text is
    escaped as Slack requires, so that it cannot notify all members of a channel.
    """
    address = connection.password or ""
    if not re.fullmatch(r"https?://[!-~]+", address):
        raise ValueError(
            "its password must be the whole address of the webhook, for example https://hooks.slack.com/services/..."
        )
    body = json.dumps({"text": escape("\n".join([text.subject, *text.lines, text.link]), quote=False)})
    request = Request(address, body.encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=_TIMEOUT):
        pass


#: The id of each connection, and the function that sends a notice through it.
CHANNELS: dict[str, Callable[[Connection, Text], None]] = {"spark_bert_smtp": _mail, "spark_bert_webhook": _webhook}
