"""The stage leaderboard: write leaderboard.json, leaderboard.md and leaderboard.html from all finished runs."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome
from tasks.stages.studies.leaderboard.entries import Entry, find

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The runs that are compared, and a line per run that is left out."""

    entries: list[Entry]
    warnings: list[str]

    def fingerprint(self) -> str:
        """Return the runs with their artifacts, and the warnings."""
        return json.dumps([[[entry.run, entry.keys] for entry in self.entries], self.warnings], sort_keys=True)


def plan(experiment: Experiment, run: Run) -> Plan:
    """Find the runs of the home."""
    return Plan(*find(run.folder.parent))


def run(context: Context, plan: Plan) -> Outcome:
    """Compare the models, and write the leaderboard."""
    from tasks.stages.studies.leaderboard import report
    from tasks.stages.studies.leaderboard.table import summarize

    folder = context.output
    for warning in plan.warnings:
        log.warning("%s", warning)
    summary = summarize(plan.entries, plan.warnings)
    write_json(folder / "leaderboard.json", summary)
    (folder / "leaderboard.md").write_text(report.markdown(summary), encoding="utf-8")
    (folder / "leaderboard.html").write_text(report.html(summary), encoding="utf-8")
    best = {task["task"]: task["rows"][0]["name"] for task in summary["tasks"]}
    log.info("%d runs of %d tasks", len(plan.entries), len(best))
    files = {"leaderboard": "leaderboard.html", "summary": "leaderboard.json", "markdown": "leaderboard.md"}
    return Outcome({"runs": len(plan.entries), "best": best, "warnings": plan.warnings, "files": files})
