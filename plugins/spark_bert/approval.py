"""Asking a person whether a model shall become the champion."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.hitl import HITLUser

from include.artifacts import write_json
from include.runs import Run
from include.sections import Retraining
from spark_bert.links import address
from spark_bert.notices import Notice
from spark_bert.places import this_run
from spark_bert.retraining import approvers, asked

#: Rows of each kind that a request shows, and characters of each.
SHOWN, LONGEST = 5, 200


class PromotionApproval(ApprovalOperator):
    """Waits for a person, where the experiment or the deployment wants one.

    The answer is written into the run's decision.json. The request shows the comparison with the champion, and links to
    the report and to the rows that the two models disagree on. It holds no worker slot. No answer in time is a
    rejection.
    """

    def __init__(self, **keywords: Any) -> None:
        longest = timedelta(hours=Retraining().timeout_hours)
        super().__init__(
            subject="", defaults=self.REJECT, response_timeout=longest, notifiers=Notice("approval"), **keywords
        )

    def execute(self, context: Context) -> Any:
        """Ask. Skipped where the comparison decides by itself."""
        options = asked(context).retraining
        if not options.approval:
            raise AirflowSkipException("nobody is asked: retraining.approval is off, so the comparison decides")
        run = this_run(context)
        _answer(run).unlink(missing_ok=True)  # of an earlier try: what it decided about may be another comparison
        version = run.artifact("register").manifest.result["version"]
        self.response_timeout = timedelta(hours=options.timeout_hours)
        self.assigned_users = [HITLUser(id=name, name=name) for name in approvers()] or None
        self.subject = f"Make version {version} the champion?"
        self.body = request(context, options.timeout_hours)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Keep the answer. Unlike an approval in general, a rejection skips nothing: promote writes it down."""
        answer = HITLOperator.execute_complete(self, context, event)
        person = answer["responded_by_user"]
        decision = {
            "decision": "approved" if answer["chosen_options"] == [self.APPROVE] else "rejected",
            "by": person["name"] if person else "nobody, in time",
            "at": event["responded_at"].isoformat(timespec="seconds"),
            "timed_out": bool(event.get("timedout")),
        }
        write_json(_answer(this_run(context)), decision)
        return decision


def _answer(run: Run) -> Path:
    return run.folder / "decision.json"


def request(context: Context, hours: float) -> str:
    """What the person is shown, as Markdown: both models' metrics, where they differ, and where to read on."""
    run, dag_run = this_run(context), context["dag_run"]
    found = json.loads((run.artifact("challenge").path / "challenge.json").read_text(encoding="utf-8"))
    champion = found["metrics"]["champion"] or {}
    lines = [f"{found['words']} Run `{run.folder.name}`.", "", "| dev | this model | champion |", "| --- | --- | --- |"]
    for name, value in found["metrics"]["model"].items():
        lines.append(f"| {name} | {_number(value)} | {_number(champion.get(name))} |")
    pages = {
        "Report": ("evaluate", "report.html"),
        "Comparison, with all of these rows": ("challenge", "challenge.html"),
    }
    links = {name: address(dag_run.dag_id, dag_run.run_id, *page) for name, page in pages.items()}
    lines += ["", " · ".join(f"[{name}]({link})" for name, link in links.items())]
    for title, rows in found["apart"].items():
        lines += ["", f"**{title}** ({len(rows)} rows on the page, the first here):", ""]
        lines += [f"- {_quoted(row)}" for row in rows[:SHOWN]]
    return "\n".join([*lines, "", f"Without an answer within {hours:g} hours the champion stays."])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _quoted(row: dict[str, Any]) -> str:
    """A row in words; its text as code, in which no Markdown counts."""
    text = " / ".join(row["sentences"]).replace("`", "'")[:LONGEST]
    return f"`{text}`: {row['label']}, taken for {row['prediction']}"
