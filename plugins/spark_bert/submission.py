"""GLUE's one zip: which runs go into it, and the run that puts them together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import Context, task
from airflow.sdk.exceptions import AirflowFailException

from include.experiment import Experiment
from include.named import build
from include.runs import Run
from include.stages import BadInput
from spark_bert.assets import FINETUNED
from spark_bert.params import resolve
from spark_bert.places import home, this_run

#: The tasks whose models the submission waits for.
TASKS = ("SST-2", "CoLA", "STS-B")


@task(task_id="announce", outlets=[FINETUNED], doc_md="tell other Dags which run has ended with a model that passed")
def announce(**context: Any) -> dict[str, Any]:
    """Add an event to the asset, which names the run."""
    data = resolve(context["params"]).data
    # Files of one's own have a test split of their own, so GLUE's zip must not wait for them.
    name = f"{data.task}-files" if data.source == "files" else data.task
    event = context["outlet_events"][FINETUNED]
    event.add_partitions(name)
    event.extra = {"task": name, "run": this_run(context).folder.name}
    return dict(event.extra)


@task(task_id="choose", inlets=[FINETUNED], doc_md="choose the runs, one a task, and begin a run of their own")
def choose(**context: Any) -> dict[str, str]:
    """Task to run: those of the param `runs`, else of the events that started this run, else the newest of a task."""
    try:
        chosen = by_name(context["params"]["runs"]) if context["params"]["runs"] else by_event(context)
        begin(this_run(context), list(chosen.values()))
    except BadInput as error:
        raise AirflowFailException(str(error)) from None
    return chosen


def by_name(names: list[str]) -> dict[str, str]:
    """Task to run, of runs below runs/. Raises BadInput for one that is not there, and for two of one task."""
    found: dict[str, str] = {}
    for name in names:
        task_name = _experiment(name).data.task
        if task_name in found:
            raise BadInput(f"{found[task_name]} and {name} are both runs of {task_name}: name one of them")
        found[task_name] = name
    return found


def by_event(context: Mapping[str, Any]) -> dict[str, str]:
    """Task to run, of the newest event of each task among those that started this run, or of all there are."""
    started_by = context["triggering_asset_events"]
    events = started_by[FINETUNED] if len(started_by) else context["inlet_events"][FINETUNED]
    named = [event for event in events if {"task", "run"} <= set(event.extra)]  # one made by hand may name nothing
    newest = {event.extra["task"]: event.extra["run"] for event in sorted(named, key=lambda event: event.timestamp)}
    found = {name: newest[name] for name in TASKS if name in newest}
    if not found:
        raise BadInput(f"no run of {', '.join(TASKS)} has passed its gate yet: trigger finetune, or name runs in runs")
    return found


def begin(run: Run, names: list[str]) -> None:
    """Let the run start where the first one has ended, and its submission hold them all."""
    for name in names:
        _experiment(name)
    first, *others = names
    submission = {"submission.all_tasks": True, "submission.runs": others}
    run.adopt(Run(home() / "runs" / first), without="export", changes=submission)


def chosen_runs(context: Context) -> Experiment:
    """The experiment of the run that `choose` has begun."""
    run = this_run(context)
    return build(run.record().get("experiment", {}), f"the run {run.folder.name}")


def _experiment(name: str) -> Experiment:
    record = Run(home() / "runs" / name).record() if Path(name).name == name else {}
    if "experiment" not in record:
        raise BadInput(f"there is no run {name} below {home() / 'runs'}: write the name of one of the folders there")
    return build(record["experiment"], f"the run {name}")
