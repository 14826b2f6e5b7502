"""The stage ingest: create a new version of a dataset from the last version and the new files in the drop folder.

The artifact is the version. Once it is committed, the dataset's record names it as the last version. If the drift is
above a limit, the version is refused: the figures are kept as evidence, and the record is not changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from include.artifacts import Artifact, write_json
from include.datasets import Dataset
from include.experiment import Experiment
from include.runs import Run
from include.stages import STAGES, BadInput, ExitCode
from tasks.context import Context, Outcome
from tasks.sources import open_source
from tasks.stages.lifecycle.ingest.drop_folder import drop_folder, new_files, set_aside
from tasks.stages.lifecycle.ingest.selection import measure_drift, select
from tasks.stages.lifecycle.ingest.version import (
    RECORD,
    Inputs,
    Plan,
    Row,
    dataset_of,
    identity,
    layout,
    read_inputs,
    record_of,
    write_tables,
)

REMEDY = "check the new files, and remove wrong rows or, if the change is real, raise the limit"

log = logging.getLogger(__name__)


def plan(experiment: Experiment, run: Run) -> Plan:
    """Find the last version and the new files."""
    if not experiment.data.is_described:
        raise BadInput(
            "a dataset needs a data.task with data.labels or data.score_range, since rows that arrive later could have "
            "others than the first ones: write them"
        )
    folder = drop_folder(experiment.dataset.drop)
    last = next(iter(dataset_of(experiment, run).versions()), "")
    if not last:
        return Plan("", open_source(experiment).fingerprint(), new_files(folder, ()))
    record = record_of(run.store, last)
    asked = identity(experiment.task)
    wrong = [f"{key} {record[key]!r}, not {asked[key]!r}" for key in asked if record[key] != asked[key]]
    if wrong:
        raise BadInput(
            f"the dataset {record['dataset']} has {'; '.join(wrong)}: set another dataset.name, or the dataset's task"
        )
    files = new_files(folder, record["known_files"])
    return (not files and _made_here(experiment, run, last)) or Plan(last, "", files)


def _made_here(experiment: Experiment, run: Run, last: str) -> Plan | None:
    """Return the plan of the last version if this run created it, so that running the stage again finds it."""
    artifact = run.store.find("ingest", last)
    mine = run.record()["stages"].get("ingest", {}).get("key") == last
    if artifact is None or not mine or STAGES["ingest"].differences(artifact.manifest.part, experiment):
        return None
    return Plan.of(artifact.manifest)


def run(context: Context, plan: Plan) -> Outcome:
    """Write the new version, provided that the new files add rows and that their drift is within the limits."""
    experiment, output = context.experiment, context.output
    with (output / "quarantine.jsonl").open("w", encoding="utf-8") as stream:
        inputs = read_inputs(experiment, context.run.store, plan, stream)
        added, counts = select(inputs.known, inputs.files.values(), experiment.task)
    for warning in [*inputs.warnings, *inputs.refused.values()]:
        log.warning("%s", warning)
    figures = measure_drift(inputs.known["train"], added, experiment.task, experiment.dataset) if added else []
    write_json(output / "drift.json", {"rows": len(added), "figures": [figure.as_json() for figure in figures]})
    unusable = sum(found.read - len(found.rows) for found in inputs.files.values())
    result = {
        "new": False,
        "dataset": dataset_of(experiment, context.run).name,
        "version": plan.parent,
        "parent": plan.parent,
        "counts": {**counts, "unusable": unusable},
        "drift": {figure.name: round(figure.value, 4) for figure in figures},
        "refused": dict(inputs.refused),
        "warnings": inputs.warnings,
        "files": {"drift": "drift.json", "quarantine": "quarantine.jsonl"},
    }
    reasons = [figure.reason for figure in figures if figure.reason]
    if reasons and len(added) >= experiment.dataset.drift_rows:
        return Outcome(result, ExitCode.GATE_FAILED, f"the new rows are refused: {'; '.join(reasons)}. {REMEDY}")
    if plan.parent and not added:
        log.info("there are no new rows: %s remains the last version", plan.parent)
        return Outcome({**result, "data": _data(context, plan.parent)})
    rows = {**inputs.known, "train": [*inputs.known["train"], *added]}
    return Outcome(_write(context, plan, inputs, rows, result))


def _data(context: Context, version: str) -> dict[str, Any]:
    """Return the fields with which an experiment trains on a version."""
    path = context.run.store.path("ingest", version)
    fields = {"source": "files", "path": str(path), **layout(context.experiment.task)}
    return {f"data.{name}": value for name, value in fields.items()}


def _write(
    context: Context, plan: Plan, inputs: Inputs, rows: Mapping[str, Sequence[Row]], result: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the tables and the record of the version, and return the result."""
    version, task = context.manifest.key, context.experiment.task
    whole = {**result, "new": True, "version": version, "rows": {split: len(part) for split, part in rows.items()}}
    earlier = record_of(context.run.store, plan.parent)["known_files"] if plan.parent else []
    record = {
        **{key: whole[key] for key in ("dataset", "version", "parent", "rows", "counts", "drift")},
        **identity(task),
        "files": {
            name: {"sha256": plan.files[name], "rows": found.read, "unusable": found.read - len(found.rows)}
            for name, found in inputs.files.items()
        },
        "known_files": [*earlier, *(plan.files[name] for name in inputs.files)],
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": context.manifest.revision,
    }
    write_tables(context.output, rows, task)
    write_json(context.output / RECORD, record)
    return {**whole, "data": _data(context, version)}


def committed(artifact: Artifact, run: Run) -> None:
    """Make a new version the last version of the dataset, and move malformed files away."""
    manifest = artifact.manifest
    result, files = manifest.result, Plan.of(manifest).files
    if result["new"]:
        Dataset(run.store.root.parent, result["dataset"]).accept(result["version"], result["parent"])
    for name, reason in result["refused"].items():
        set_aside(drop_folder(manifest.part["dataset"]["drop"]) / name, files[name], reason)
