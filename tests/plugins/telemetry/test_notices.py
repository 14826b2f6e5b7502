"""Notices: what they say, that they arrive, and that a run does not depend on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from airflow.api_fastapi.core_api.datamodels.dag_run import DAGRunResponse
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.execution_time.callback_supervisor import execute_callback
from airflow.triggers.callback import CallbackTrigger

from spark_bert.operators.failures import Refused
from spark_bert.telemetry.notices import Notice
from tests.airflow_home import airflow
from tests.plugins.receivers import MailServer, WebhookServer, serving
from tests.ports import free_port

pytestmark = pytest.mark.usefixtures("database")  # where Airflow looks for connections that no variable holds
LINK = "http://localhost:8080/dags/retrain/runs/r1/tasks/gate?try_number=1"
SECRET = "/services/T0/s3cr3t"
REFUSED = Refused('gate: accuracy 0.9 is below "0.927" <!channel> & more')
DEADLINE: dict[str, Any] = {
    "dag_run": {"dag_id": "retrain", "dag_run_id": "asset__1+00:00", "queued_at": "2026-01-02T03:00:00Z"},
    "deadline": {"id": "1", "deadline_time": datetime(2026, 1, 2, 9, 30, tzinfo=UTC)},
}


WINDOWS = [
    {"window": f"batches {n} to {n}", "rows": 1040, "reasons": ["too long", "new words"], "file": "?"}
    for n in range(12)
]
TOLD = [f"batches {n} to {n} (1040 rows): too long; new words" for n in range(12)]


def context(task_id: str = "gate", result: object = None, **more: object) -> Any:
    ti = SimpleNamespace(
        dag_id="retrain", run_id="r1", task_id=task_id, log_url=LINK, xcom_pull=lambda task_ids: result
    )
    return {"ti": ti, **more}


PROMOTING = """
from airflow.sdk import DAG, task
from spark_bert.telemetry.notices import Notice

with DAG("promoting", schedule=None):
    @task(on_success_callback=Notice("promotion"))
    def promote():
        return {"promoted": True, "version": "3", "champion": "3", "reason": "It is not worse."}
    promote()
"""


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    with serving(MailServer()) as server:
        connect_mail(monkeypatch, server.server_address[1])
        yield server


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookServer]:
    with serving(WebhookServer()) as server:
        connect_chat(monkeypatch, f"http://127.0.0.1:{server.server_address[1]}{SECRET}")
        yield server


def connect_mail(monkeypatch: pytest.MonkeyPatch, port: object, to: str = "ann@example.org, bob@example.org") -> None:
    extra = {"from_email": "airflow@example.org", "to": to, "disable_ssl": True, "disable_tls": True, "timeout": 5}
    connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_BERT_SMTP", json.dumps(connection))


def connect_chat(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_BERT_WEBHOOK", json.dumps({"conn_type": "generic", "password": address}))


def logged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the task's log, down to level info."""
    return capsys.readouterr().out.splitlines()


def test_a_refusal_is_told_by_mail_and_in_the_chat(mailbox: MailServer, chat: WebhookServer) -> None:
    Notice("failure")(context(exception=REFUSED))
    (mail,) = mailbox.mails
    assert (mail["From"], mail["Subject"]) == ("airflow@example.org", "retrain: gate: refused")
    assert mailbox.recipients == ["ann@example.org", "bob@example.org"]
    (part,) = mail.iter_parts()
    assert part.get_content().splitlines() == [
        "gate: accuracy 0.9 is below &quot;0.927&quot; &lt;!channel&gt; &amp; more<br>",
        "Dag retrain, run r1, task gate<br>",
        f'<a href="{LINK}">{LINK}</a>',
    ]
    told = f"""retrain: gate: refused
gate: accuracy 0.9 is below "0.927" &lt;!channel&gt; &amp; more
Dag retrain, run r1, task gate
{LINK}"""
    assert chat.posts == [(SECRET, told)]


@pytest.mark.parametrize(
    ("event", "given", "told"),
    [
        ("failure", context(exception=AirflowException("rank 1 is lost")), ["gate: failed", "rank 1 is lost"]),
        ("failure", context(), ["gate: failed", "See the log for the reason."]),
        (
            "promotion",
            context("promote", {"promoted": True, "version": "3", "champion": "3", "reason": "It is not worse."}),
            ["promote: version 3 promoted", "It is not worse.", "The champion is version 3."],
        ),
        (
            "promotion",
            context("promote", {"promoted": False, "version": "3", "champion": "", "decision": "held", "reason": "?"}),
            ["promote: version 3 held", "?", "There is no champion."],
        ),
        (
            "rollback",
            context("rollback", {"model": "spark-bert-reviews", "version": "2", "left": "3"}),
            ["rollback: version 2 is the champion again", "Version 3 of spark-bert-reviews is no longer the champion."],
        ),
        (
            "ingest",
            context("ingest", {"refused": {"a.tsv": "a.tsv is empty: add data to it", "b.csv": "b.csv line 3: ?"}}),
            [
                "ingest: 2 files set aside",
                "a.tsv is empty: add data to it",
                "b.csv line 3: ?",
                "The other files were ingested. Correct these files in the drop folder's folder refused, "
                "and move them back.",
            ],
        ),
        (
            "drift",
            context("drifted", {"stream": "reviews", "drift": WINDOWS[:2]}),
            ["drifted: 2 windows of the stream reviews", "batches 0 to 0 (1040 rows): too long; new words", TOLD[1]],
        ),
        (
            "drift",
            context("drifted", {"stream": "reviews", "drift": WINDOWS}),
            ["drifted: 12 windows of the stream reviews", "The last 10 of them:", *TOLD[2:]],
        ),
        (
            "approval",
            context("approve", task=SimpleNamespace(subject="Promote version 3?")),
            ["approve: waits for a decision", "Promote version 3?"],
        ),
    ],
)
def test_what_is_said(chat: WebhookServer, event: Any, given: Any, told: list[str]) -> None:
    Notice(event)(given)
    ((_, text),) = chat.posts
    where = f"Dag retrain, run r1, task {given['ti'].task_id}"
    assert text.splitlines() == [f"retrain: {told[0]}", *told[1:], where, LINK]


def test_an_ingest_that_sets_nothing_aside_is_no_news(chat: WebhookServer, capsys: pytest.CaptureFixture[str]) -> None:
    Notice("ingest")(context("ingest", {"refused": {}}))
    assert not chat.posts and logged(capsys) == []


def test_a_promotion_is_told_of_what_the_task_has_returned(chat: WebhookServer, tmp_path: Path) -> None:
    (tmp_path / "promoting.py").write_text(PROMOTING)
    done = airflow("dags", "test", "promoting", AIRFLOW__CORE__DAGS_FOLDER=str(tmp_path))
    ((_, text),) = chat.posts or [("", done.stdout + done.stderr)]
    assert text.startswith("promoting: promote: version 3 promoted\nIt is not worse.\nThe champion is version 3.\nDag ")


def test_a_missed_deadline_is_told_from_the_triggerer_and_from_an_executor(chat: WebhookServer) -> None:
    assert set(DEADLINE["dag_run"]) <= set(DAGRunResponse.model_fields)  # what Airflow makes a callback's dag_run of
    path = AsyncCallback(Notice, {"event": "deadline"}).path

    async def trigger() -> list[Any]:
        return [event.payload["state"] async for event in CallbackTrigger(path, given(DEADLINE)).run()]

    assert asyncio.run(trigger()) == ["running", "success"]
    as_text = json.loads(json.dumps(given(DEADLINE), default=str))
    assert execute_callback(path, as_text, Path(), None, structlog.get_logger()) == (True, None)
    told = """retrain: deadline missed
retrain's run asset__1+00:00 has not ended 6.5 h after it was queued.
http://localhost:8080/dags/retrain/runs/asset__1%2B00%3A00"""
    assert [text for _, text in chat.posts] == [told, told]


def given(context: dict[str, Any]) -> dict[str, Any]:
    return {"event": "deadline", "context": context}


def test_without_connections_nobody_is_told_and_nothing_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    Notice("failure")(context(exception=REFUSED))
    assert logged(capsys) == []


def test_servers_that_do_not_answer_cost_a_warning_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect_mail(monkeypatch, free_port())
    connect_chat(monkeypatch, f"http://127.0.0.1:{free_port()}{SECRET}")
    Notice("failure")(context(exception=REFUSED))
    for name, line in zip(("spark_bert_smtp", "spark_bert_webhook"), logged(capsys), strict=True):
        assert f"[warning  ] no notice was sent through the connection {name} (" in line
        assert "Connection refused" in line
        assert "correct or delete it, as docs/DEPLOY.md describes" in line and "s3cr3t" not in line


@pytest.mark.parametrize("address", ["", f"hooks.example.org{SECRET}", f"https://a b{SECRET}", f"http://a:b{SECRET}"])
def test_a_wrong_address_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    connect_chat(monkeypatch, address)
    Notice("failure")(context(exception=REFUSED))
    (line,) = logged(capsys)
    assert "spark_bert_webhook" in line and "s3cr3t" not in line


def test_one_channel_does_not_keep_the_other_from_telling(
    mailbox: MailServer, chat: WebhookServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect_mail(monkeypatch, mailbox.server_address[1], to="")
    chat.status = 403
    Notice("failure")(context(exception=REFUSED))
    assert len(chat.posts) == 1 and not mailbox.mails
    wrong, refused = logged(capsys)
    assert 'its extra has no "to": write the addresses' in wrong and "HTTP Error 403" in refused


def test_a_result_that_says_nothing_costs_a_warning(chat: WebhookServer, capsys: pytest.CaptureFixture[str]) -> None:
    Notice("promotion")(context("promote", result=None))
    (line,) = logged(capsys)
    assert "no notice of this promotion was sent" in line and not chat.posts
