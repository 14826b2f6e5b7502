"""Asking a person whether a model shall become the champion."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from include.artifacts import write_json
from include.runs import Run
from include.sections import Retraining
from spark_bert.links import address
from spark_bert.notices import Notice
from spark_bert.params import from_form
from spark_bert.retraining import this_run


class PromotionApproval(ApprovalOperator):
    """Waits for a person, where the experiment wants one, and writes the answer into the run's decision.json.

    The request shows the comparison with the champion, and links to the report and to the rows that the two models
    disagree on. It holds no worker slot. No answer in time is a rejection.
    """

    def __init__(self, **keywords: Any) -> None:
        longest = timedelta(hours=Retraining().timeout_hours)
        super().__init__(
            subject="", defaults=self.REJECT, response_timeout=longest, notifiers=Notice("approval"), **keywords
        )

    def execute(self, context: Context) -> Any:
        """Ask. Skipped where the comparison decides by itself."""
        options = from_form(context).retraining
        if not options.approval:
            raise AirflowSkipException("nobody is asked: retraining.approval is off, so the comparison decides")
        run = this_run(context)
        version = run.artifact("register").manifest.result["version"]
        self.response_timeout = timedelta(hours=options.timeout_hours)
        self.subject = f"Make version {version} the champion?"
        self.body = request(run, options.timeout_hours)
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
        write_json(this_run(context).folder / "decision.json", decision)
        return decision


def request(run: Run, hours: float) -> str:
    """What the person is shown, as Markdown."""
    challenge, evaluate = run.artifact("challenge"), run.artifact("evaluate")
    result = challenge.manifest.result
    rows = [
        f"| {name} | {_number(value)} | {_number((result['metrics'].get('champion') or {}).get(name))} |"
        for name, value in result["metrics"]["model"].items()
    ]
    return "\n".join(
        [
            f"Run `{run.folder.name}`: {_verdict(result)}.",
            "",
            f"| on {result['rows']} dev rows | this model | champion |",
            "| --- | --- | --- |",
            *rows,
            "",
            f"[Report]({address(evaluate.path, 'report.html')}) · "
            f"[Comparison, and the mistakes of both]({address(challenge.path, 'challenge.html')})",
            "",
            f"Without an answer within {hours:g} hours the champion stays.",
        ]
    )


def _verdict(result: dict[str, Any]) -> str:
    if result["outcome"] == "first":
        return "there is no champion yet"
    low, high = result["interval"]
    return (
        f"{result['outcome']} than the champion, version {result['champion']}"
        if result["outcome"] != "undecided"
        else f"so few rows cannot tell whether it is worse than the champion, version {result['champion']}"
    ) + f" (difference {result['difference']:+.4f}, 95 % interval {low:+.4f} to {high:+.4f}, margin {result['margin']})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
