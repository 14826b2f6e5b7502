"""The stage recommend: compare winner and default, and write search.json and experiment.yaml."""

from __future__ import annotations

import json

import yaml

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome


def plan(experiment: Experiment, run: Run) -> dict[str, str]:
    """Return what the trainings depend on besides the data and the experiment."""
    from tasks.search.opening import encoders

    return encoders(experiment)


def run(context: Context, plan: dict[str, str]) -> Outcome:
    """Train winner and default with other seeds, and recommend the better settings."""
    from tasks.search.comparison import compared

    summary = json.loads((context.inputs["search"].path / "search.json").read_text(encoding="utf-8"))
    data = Run(context.run.folder, context.run.store.full_check)
    summary["comparison"] = compared(summary, context.experiment, data)
    found = summary["comparison"]
    write_json(context.output / "search.json", summary)
    text = yaml.safe_dump(found["experiment"], allow_unicode=True, sort_keys=False)
    (context.output / "experiment.yaml").write_text(
        f"# {found['recommended']} of the search {summary['search']}: {found['reason']}\n{text}", encoding="utf-8"
    )
    files = {"search": "search.json", "experiment": "experiment.yaml"}
    result = {name: found[name] for name in ("recommended", "reason", "difference", "interval", "p")}
    return Outcome({"search": summary["search"], "metric": summary["metric"], **result, "files": files})
