"""What the stage ingest reads besides its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from include.experiment import Experiment
from include.runs import Run
from include.stages import STAGES, BadInput
from tasks.sources import open_source
from tasks.stages.lifecycle.ingest.plan import Plan, drop_folder, new_files
from tasks.stages.lifecycle.ingest.version import dataset_of, identity, record_of


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the plan: the last version and the new files.

    Raises:
        BadInput: If there is no drop folder, if the experiment leaves open what the labels are, or if the dataset
            belongs to another task.
        Transient: If a file may still be being copied.
    """
    if not experiment.is_described:
        raise BadInput(
            "a dataset needs a data.task with data.labels or data.score_range, since rows that arrive later could have "
            "others than the first ones: write them"
        )
    folder = drop_folder(experiment.dataset.drop)
    last = next(iter(dataset_of(experiment, run).versions()), "")
    if not last:
        return Plan("", open_source(experiment).fingerprint(), new_files(folder, ())).text()
    record = record_of(run.store, last)
    _check_task(experiment, record)
    files = new_files(folder, record["known_files"])
    return (not files and _made_here(experiment, run, last)) or Plan(last, "", files).text()


def _check_task(experiment: Experiment, record: Mapping[str, Any]) -> None:
    asked = identity(experiment.task)
    wrong = [f"{key} {record[key]!r}, not {asked[key]!r}" for key in asked if record[key] != asked[key]]
    if wrong:
        raise BadInput(
            f"the dataset {record['dataset']} has {'; '.join(wrong)}: set another dataset.name, or the dataset's task"
        )


def _made_here(experiment: Experiment, run: Run, last: str) -> str:
    """Return the fingerprint of the last version if this run created it, so that running the stage again finds it."""
    artifact = run.store.find("ingest", last)
    mine = run.record()["stages"].get("ingest", {}).get("key") == last
    if artifact is None or not mine or STAGES["ingest"].differences(artifact.manifest.part, experiment):
        return ""
    return artifact.manifest.fingerprint
