"""The stage leaderboard: write leaderboard.json, leaderboard.md and leaderboard.html from all finished runs."""

from __future__ import annotations

import logging

from include.artifacts import write_json
from tasks.context import Context, Outcome
from tasks.stages.studies.leaderboard import report
from tasks.stages.studies.leaderboard.entries import find_beside
from tasks.stages.studies.leaderboard.table import summarize

log = logging.getLogger(__name__)


def run(context: Context) -> Outcome:
    """Compare the models, and write the leaderboard.

    Raises:
        BadInput: If no run is evaluated.
    """
    found, folder = find_beside(context.run), context.output
    for warning in found.warnings:
        log.warning("%s", warning)
    summary = summarize(found)
    write_json(folder / "leaderboard.json", summary)
    (folder / "leaderboard.md").write_text(report.markdown(summary), encoding="utf-8")
    (folder / "leaderboard.html").write_text(report.html(summary), encoding="utf-8")
    best = {task["task"]: task["rows"][0]["name"] for task in summary["tasks"]}
    log.info("%d runs of %d tasks", len(found.entries), len(best))
    files = {"leaderboard": "leaderboard.html", "summary": "leaderboard.json", "markdown": "leaderboard.md"}
    return Outcome({"runs": len(found.entries), "best": best, "warnings": found.warnings, "files": files})
