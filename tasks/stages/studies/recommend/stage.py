"""The stage recommend: compare winner and default, and write search.json, experiment.yaml, and the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import SEARCH, Run
from tasks.context import Context, Outcome


def plan(experiment: Experiment, run: Run) -> dict[str, str]:
    """Return what the trainings depend on besides the data and the experiment."""
    from tasks.search.opening import read_by_trials

    return read_by_trials(experiment, run)


def run(context: Context, plan: dict[str, str]) -> Outcome:
    """Train winner and default with other seeds, and recommend the better settings."""
    from tasks.search.comparison import compared

    folder = context.output
    summary = json.loads((context.inputs["search"].path / SEARCH).read_text(encoding="utf-8"))
    found = summary["comparison"] = compared(summary, context.experiment, context.run)
    write_json(folder / SEARCH, summary)
    text = yaml.safe_dump(found["experiment"], allow_unicode=True, sort_keys=False)
    (folder / "experiment.yaml").write_text(
        f"# {found['recommended']} of the search {summary['search']}: {found['reason']}\n{text}", encoding="utf-8"
    )
    _report(summary, folder)
    files = {"search": SEARCH, "experiment": "experiment.yaml", "report": "search.html", "markdown": "search.md"}
    result = {name: found[name] for name in ("recommended", "reason", "difference", "interval", "p")}
    return Outcome({"search": summary["search"], "metric": summary["metric"], **result, "files": files})


def _report(summary: dict[str, Any], folder: Path) -> None:
    from tasks.reporting import drawing
    from tasks.stages.studies.recommend import plots, report

    images: dict[str, Path] = {}
    for plot in (plots.progress, plots.importance, plots.coordinates):
        if figure := plot(summary):
            images[plot.__name__] = folder / f"{plot.__name__}.png"
            drawing.save(figure, images[plot.__name__])
    (folder / "search.md").write_text(report.markdown(summary), encoding="utf-8")
    (folder / "search.html").write_text(report.html(summary, images), encoding="utf-8")
