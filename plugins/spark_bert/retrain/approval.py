"""The operator that asks a person whether a model may become the champion."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.hitl import HITLUser

from include.artifacts import write_json
from include.fields.retraining import Retraining
from include.runs import ANSWERS, DECISION
from spark_bert.deployment.places import this_run
from spark_bert.retrain.retraining import approvers, retraining_experiment
from spark_bert.telemetry.notices import Notice
from spark_bert.web.links import address

MAX_ROWS, MAX_CHARACTERS = 5, 200  # of a request: per kind of disagreement, and per row


class PromotionApproval(ApprovalOperator):
    """Asks a person for approval if the experiment or the deployment requires it. Without an answer, it rejects.

    The result is the answer, which `answers` hands to promote; decision.json in the run's folder shows it to readers.
    """

    def __init__(self, **keywords: Any) -> None:
        longest = timedelta(hours=Retraining().timeout_hours)
        super().__init__(
            subject="", defaults=self.REJECT, response_timeout=longest, notifiers=Notice("approval"), **keywords
        )

    def execute(self, context: Context) -> Any:
        """Send the request, or skip the Airflow task if the comparison with the champion decides alone."""
        options = retraining_experiment(context).retraining
        if not options.approval:
            raise AirflowSkipException(
                "no approval is needed: retraining.approval is off, so the comparison with the champion decides"
            )
        # An earlier try may have asked about another comparison.
        (this_run(context).folder / DECISION).unlink(missing_ok=True)
        self.response_timeout = timedelta(hours=options.timeout_hours)
        self.assigned_users = [HITLUser(id=name, name=name) for name in approvers()] or None
        self.subject = f"Make version {_asked_about(context)['version']} the champion?"
        self.body = request_body(context, options.timeout_hours)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Write the answer to decision.json and return it, with the version that it is about."""
        # Not ApprovalOperator's, which skips the tasks behind a rejection: promote records it.
        answer = HITLOperator.execute_complete(self, context, event)
        person = answer["responded_by_user"]
        decision = {
            "decision": "approved" if answer["chosen_options"] == [self.APPROVE] else "rejected",
            "by": person["name"] if person else "nobody, in time",
            "at": event["responded_at"].isoformat(timespec="seconds"),
            "timed_out": bool(event.get("timedout")),
            **_asked_about(context),
        }
        write_json(this_run(context).folder / DECISION, decision)
        return decision


def answers(context: Context) -> dict[str, str]:
    """Return the variable that tells promote what a person has answered, and the trial's figures.

    Both come from Airflow's database, because any stage could write into the run's folder.
    """
    returned = {name: context["ti"].xcom_pull(task_ids=name) for name in ("approve", "trial")}
    return {ANSWERS: json.dumps({name: value for name, value in returned.items() if value is not None})}


def _asked_about(context: Context) -> dict[str, str]:
    entry = context["ti"].xcom_pull(task_ids="register")
    return {name: entry[name] for name in ("model", "version")}


def request_body(context: Context, hours: float) -> str:
    """Return the request as Markdown: the metrics of both models, rows that they disagree on, and links."""
    run, dag_run = this_run(context), context["dag_run"]
    found = json.loads((run.artifact("challenge").path / "challenge.json").read_text(encoding="utf-8"))
    champion = found["metrics"]["champion"] or {}
    lines = [f"{found['words']} Run `{run.folder.name}`.", "", "| dev | challenger | champion |", "| --- | --- | --- |"]
    for name, value in found["metrics"]["model"].items():
        lines.append(f"| {name} | {_number(value)} | {_number(champion.get(name))} |")
    lines += ["", found["capacity"]] if found.get("capacity") else []
    lines += _trial(context["ti"].xcom_pull(task_ids="trial"))
    pages = {
        "Report": ("evaluate", "report.html"),
        "Comparison, with more of these rows": ("challenge", "challenge.html"),
    }
    links = {name: address(dag_run.dag_id, dag_run.run_id, *page) for name, page in pages.items()}
    lines += ["", " · ".join(f"[{name}]({link})" for name, link in links.items())]
    for title, lost in found["apart"].items():
        rows = lost["rows"][:MAX_ROWS]
        lines += ["", f"**{title}** ({len(rows)} of {lost['count']:,} rows):", ""]
        lines += [f"- {_quoted(row)}" for row in rows]
    return "\n".join([*lines, "", f"If nobody answers within {hours:g} hours, the champion stays."])


def _trial(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    took = ", ".join(f"{name} {value:g} ms" for name, value in found["milliseconds"].items() if value is not None)
    agree = f"In the trial, {found['same']:,} of {found['texts']:,} texts got the champion's answer"
    return ["", f"{agree} (mean time of a request: {took})." if took else f"{agree}."]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _quoted(row: dict[str, Any]) -> str:
    text = " / ".join(row["sentences"]).replace("`", "'")[:MAX_CHARACTERS]  # as code, Markdown in it has no effect
    return f"`{text}`: {row['label']}, predicted as {row['prediction']}"
