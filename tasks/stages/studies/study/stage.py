"""The stage study: write study.json, study.md, the plots and report.html from the arms of one study."""

from __future__ import annotations

import logging
from pathlib import Path

from include.artifacts import write_json
from tasks.context import Context, Outcome
from tasks.reporting import drawing
from tasks.stages.studies.study import plots, report
from tasks.stages.studies.study.arms import find
from tasks.stages.studies.study.table import summarize

log = logging.getLogger(__name__)


def run(context: Context) -> Outcome:
    """Compare the arms, and write the report.

    Raises:
        BadInput: If the study has no arms.
    """
    name, folder = context.experiment.study.name, context.output
    found = find(context.run.folder.parent, name)
    for warning in found.warnings:
        log.warning("%s", warning)
    summary = summarize(name, found)
    write_json(folder / "study.json", summary)
    (folder / "study.md").write_text(report.markdown(summary), encoding="utf-8")
    drawn = {"metric": plots.intervals(summary), "tradeoff": plots.tradeoff(summary)}
    images: dict[str, Path] = {}
    for title, figure in drawn.items():
        if figure is not None:
            images[title] = folder / f"{title}.png"
            drawing.save(figure, images[title])
    (folder / "report.html").write_text(report.html(summary, images), encoding="utf-8")
    log.info("%s: %d arms of %d configurations", name, len(found.arms), len(summary["rows"]))
    result = {"study": name, "arms": len(found.arms), "configurations": len(summary["rows"])}
    files = {"report": "report.html", "summary": "study.json", "markdown": "study.md"}
    return Outcome({**result, "warnings": found.warnings, "files": files})
