"""The submission zip for GLUE: which runs go into it, and the run that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import Context, task

from include.experiment import Experiment
from include.fields.data import OWN
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput
from spark_bert.dag.assets import FINETUNED
from spark_bert.dag.params import resolve
from spark_bert.deployment.places import home, this_run

#: The GLUE tasks whose models the submission waits for.
TASKS = ("SST-2", "CoLA", "STS-B")


@task(
    task_id="announce",
    outlets=[FINETUNED],
    doc_md="announce to other Dags that the model of this run has passed its gate",
)
def announce(**context: Any) -> dict[str, Any]:
    """Update the asset `finetuned` with an event that names the task and the run."""
    data = resolve(context["params"]).data
    # A user's own files have another test split than GLUE.
    name = f"{data.task}-files" if data.source in OWN else data.task
    event = context["outlet_events"][FINETUNED]
    if name in TASKS:  # Airflow would count any other partition as one that glue_submission has received
        event.add_partitions(name)
    event.extra = {"task": name, "run": this_run(context).folder.name}
    return dict(event.extra)


@task(task_id="choose", inlets=[FINETUNED], doc_md="choose one run per GLUE task, and start a new run from them")
def choose(**context: Any) -> dict[str, str]:
    """Let this run adopt the artifacts of one run per task, and return the names of their folders by task."""
    chosen = by_name(context["params"]["runs"]) if context["params"]["runs"] else by_event(context)
    for name in chosen.values():
        _experiment(name)
    first, *others = chosen.values()
    submission = {"submission.all_tasks": True, "submission.runs": others}
    this_run(context).adopt(Run(home() / "runs" / first), without="export", changes=submission)
    return chosen


def by_name(names: list[str]) -> dict[str, str]:
    """Return the named runs by their tasks."""
    found: dict[str, str] = {}
    for name in names:
        task_name = _experiment(name).data.task
        if task_name in found:
            raise BadInput(f"{found[task_name]} and {name} are both runs of {task_name}: name only one of them")
        found[task_name] = name
    return found


def by_event(context: Mapping[str, Any]) -> dict[str, str]:
    """Return the runs of the newest events by their tasks: those that started this run, or all if it was triggered."""
    started_by = context["triggering_asset_events"]
    events = started_by[FINETUNED] if len(started_by) else context["inlet_events"][FINETUNED]
    # An event that a user has created manually may lack these keys.
    named = [event for event in events if {"task", "run"} <= set(event.extra)]
    newest = {event.extra["task"]: event.extra["run"] for event in sorted(named, key=lambda event: event.timestamp)}
    found = {name: newest[name] for name in TASKS if name in newest}
    if not found:
        raise BadInput(f"no run of {', '.join(TASKS)} has passed its gate yet: trigger finetune, or set the param runs")
    return found


def submission_experiment(context: Context) -> Experiment:
    """Return the experiment that `choose` has recorded for this run."""
    run = this_run(context)
    return build(run.record().get("experiment", {}), f"the run {run.folder.name}")


def _experiment(name: str) -> Experiment:
    record = Run(home() / "runs" / name).record() if Path(name).name == name else {}
    if "experiment" not in record:
        raise BadInput(f"there is no run {name} in {home() / 'runs'}: write the name of one of the folders there")
    return build(record["experiment"], f"the run {name}")
