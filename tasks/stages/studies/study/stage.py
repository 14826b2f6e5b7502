"""The stage study: write study.json, study.md, the plots and report.html from the arms of one study."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome
from tasks.stages.studies.study.arms import Arm, find

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The arms that are compared, sorted by configuration and seed, and a line per run that cannot be read."""

    arms: list[Arm]
    warnings: list[str]

    def fingerprint(self) -> str:
        """Return the runs and artifacts that are compared, and the warnings."""
        arms = [{**arm.metadata.model_dump(mode="json"), **arm.keys} for arm in self.arms]
        return json.dumps([arms, self.warnings], sort_keys=True)


def plan(experiment: Experiment, run: Run) -> Plan:
    """Find the arms of the study."""
    return Plan(*find(run.folder.parent, experiment.study.name))


def run(context: Context, plan: Plan) -> Outcome:
    """Compare the arms, and write the report."""
    from tasks.reporting import drawing
    from tasks.stages.studies.study import report
    from tasks.stages.studies.study.table import summarize

    name, folder = context.experiment.study.name, context.output
    for warning in plan.warnings:
        log.warning("%s", warning)
    summary = summarize(name, plan.arms, plan.warnings)
    write_json(folder / "study.json", summary)
    (folder / "study.md").write_text(report.markdown(summary), encoding="utf-8")
    drawn = {"metric": report.intervals(summary), "tradeoff": report.tradeoff(summary)}
    images: dict[str, Path] = {}
    for title, figure in drawn.items():
        if figure is not None:
            images[title] = folder / f"{title}.png"
            drawing.save(figure, images[title])
    (folder / "report.html").write_text(report.html(summary, images), encoding="utf-8")
    log.info("%s: %d arms of %d configurations", name, len(plan.arms), len(summary["rows"]))
    result = {"study": name, "arms": len(plan.arms), "configurations": len(summary["rows"])}
    files = {"report": "report.html", "summary": "study.json", "markdown": "study.md"}
    return Outcome({**result, "warnings": plan.warnings, "files": files})
