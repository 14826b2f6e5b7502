"""A run: runs/<run>/run.json points at the artifacts that it used, and at-work/<stage>.json says what is made now."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from include.artifacts import Artifact, ArtifactStore, write_json
from include.experiment import Experiment
from include.named_experiments import merge
from include.stages import PIPELINE, STAGES, BadInput, StageError, flatten
from include.text import is_unwritable
from include.tracing import VARIABLES

log = logging.getLogger(__name__)

#: The folder of a run with one file for each stage at work.
AT_WORK = "at-work"
#: The file of a run that is an arm of an ablation: its study, configuration, task and seed.
ARM = "arm.json"
#: The file of a run with how far its search is. The artifacts of search and recommend have such a file as well.
SEARCH = "search.json"
#: The file of a run with a person's answer to a request for approval. As all files of a run, it only informs: every
#: stage may write there.
DECISION = "decision.json"
#: The file of a run with the figures of its model's trial in the service, for information too.
TRIAL = "trial.json"
#: The variable in which Airflow tells the stage promote what its tasks `approve` and `trial` have returned: JSON with a
#: key for each of them that was not skipped. They lie in Airflow's database, where no stage writes.
ANSWERS = "SPARK_BERT_PROMOTION"
#: The variables with a stage's Dag, Dag run, and index in a mapped task group.
DAG_ID, RUN_ID, MAP_INDEX = VARIABLES["dag_id"], VARIABLES["run_id"], VARIABLES["map_index"]


class Entry(BaseModel):
    """What run.json says of one stage. Times are in seconds since 1970, and None in records of earlier versions."""

    key: str  # "" where it made nothing
    exit_code: int
    message: str = ""
    path: str = ""
    result: dict[str, Any] = {}
    started: float | None = None
    ended: float | None = None
    reused: bool = False  # whether the artifact was there before this run needed it


class Recorded(BaseModel):
    """What run.json says of a run."""

    run: str
    dag_id: str = ""  # unless an Airflow task has started one of its stages
    run_id: str = ""
    map_index: int = -1  # unless that was a task of a mapped task group
    search: str = ""  # whose trial it is, if it is one
    experiment: dict[str, dict[str, Any]] = {}
    stages: dict[str, Entry]


class Run:
    """A run's folder, below runs/ of a root that also holds artifacts/. For full_check, see ArtifactStore."""

    def __init__(self, folder: Path, full_check: bool = False) -> None:
        folder = folder.absolute()
        if is_unwritable(str(folder)):
            raise BadInput(f"the run folder {str(folder)!a} is not UTF-8: give it a name that is")
        if folder.parent.name != "runs" or folder.name == "..":
            raise BadInput(f"the run folder {folder} must be in a folder named runs, such as work/runs/first")
        self.folder = folder
        self.store = ArtifactStore(folder.parent.parent, full_check)

    @property
    def file(self) -> Path:
        """The run's record."""
        return self.folder / "run.json"

    def record(self) -> dict[str, Any]:
        """Return what `Recorded` describes, as JSON values. Raise BadInput if the file is damaged."""
        if not self.file.is_file():
            return {"run": self.folder.name, "stages": {}}
        try:
            record: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
            Recorded.model_validate(record)
        except (ValueError, RecursionError) as error:  # pydantic's is a ValueError
            raise BadInput(f"{self.file} is damaged: remove {self.folder} and run the stages again") from error
        return record

    def add(
        self, artifact: Artifact, experiment: Experiment, started: float | None = None, reused: bool = False
    ) -> None:
        """Point the run at an artifact, and remove the stages that were built on another one from its record.

        If the run already points at it, its times stay. `started` is when the stage began, in seconds since 1970.
        """
        manifest = artifact.manifest
        entry = {
            "key": manifest.key,
            "path": str(artifact.path.relative_to(self.store.root.parent)),
            "exit_code": manifest.exit_code,
            "message": manifest.message,
            "result": manifest.result,
            **_until_now(started),
            "reused": reused,
        }
        known = self.record()["stages"].get(manifest.stage, {})
        if known.get("key") == manifest.key:
            entry |= {name: known[name] for name in ("started", "ended", "reused") if name in known}
        self._write(manifest.stage, entry, experiment)

    def adopt(self, other: Run, without: str, changes: dict[str, Any], search: str = "") -> None:
        """Start with what another run of the same home has made, except for one stage and those that follow from it.

        The changes are fields of the experiment ("section.field") that only these stages read. For a trial, `search` is
        the name of the search.
        """
        record = other.record()
        stages = {
            name: {**entry, "started": None, "ended": None, "reused": True}
            for name, entry in record["stages"].items()
            if name in PIPELINE and name not in {without, *descendants(without)}
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        experiment = merge(record["experiment"], changes)
        begun = {"run": self.folder.name, "from": other.folder.name, "experiment": experiment, "stages": stages}
        write_json(self.file, begun | ({"search": search} if search else {}))

    def fail(
        self,
        stage: str,
        error: StageError,
        experiment: Experiment | None,
        started: float | None = None,
        told: Mapping[str, str] = os.environ,
    ) -> None:
        """Record why a stage made nothing, unless the run points at what it made before.

        The experiment is None if that is what is wrong, and `told` has the variables that name the Dag run.
        """
        if not self.record()["stages"].get(stage, {}).get("key"):
            entry = {"key": "", "exit_code": int(error.exit_code), "message": str(error), **_until_now(started)}
            self._write(stage, {**entry, "reused": False}, experiment, told)

    def _write(
        self, stage: str, entry: dict[str, Any], experiment: Experiment | None, told: Mapping[str, str] = os.environ
    ) -> None:
        record = self.record()
        stages: dict[str, Any] = record["stages"]
        if stages.get(stage, {}).get("key") != entry["key"]:
            stages = {name: known for name, known in stages.items() if name not in descendants(stage)}
        self.folder.mkdir(parents=True, exist_ok=True)
        record |= {name: told[of] for name, of in (("dag_id", DAG_ID), ("run_id", RUN_ID)) if told.get(of)}
        if index := told.get(MAP_INDEX):
            record["map_index"] = int(index)
        if experiment and "experiment" in record:  # of each field, what the stage that read it last was given
            record["experiment"] = merge(record["experiment"], flatten(STAGES[stage].part(experiment)))
        elif experiment:
            record["experiment"] = experiment.model_dump(mode="json")
        write_json(self.file, {**record, "stages": {**stages, stage: entry}})

    def artifact(self, stage: str, experiment: Experiment | None = None) -> Artifact:
        """Return the artifact of a finished stage. Raise BadInput if there is none, or one of another experiment."""
        entry = self.record()["stages"].get(stage)
        if entry is None:
            raise BadInput(f"the run {self.folder.name} has no {stage} yet: run the stage {stage} first")
        if entry["exit_code"]:
            raise BadInput(f"{stage} failed in the run {self.folder.name}: {entry.get('message')}")
        artifact = self.store.find(stage, entry["key"])
        if artifact is None:
            raise BadInput(f"{self.store.path(stage, entry['key'])} is gone: run the stage {stage} again")
        changed = STAGES[stage].differences(artifact.manifest.part, experiment) if experiment is not None else {}
        if changed:
            raise BadInput(
                f"{stage} of the run {self.folder.name} was made from another experiment: "
                f"{_in_words(changed, artifact.manifest.part)}. Run the stage {stage} again, or use a new run folder"
            )
        return artifact


def _until_now(started: float | None) -> dict[str, float]:
    ended = time.time()
    return {"started": round(ended if started is None else started, 3), "ended": round(ended, 3)}


def _in_words(changed: dict[str, tuple[Any, Any]], made: dict[str, Any]) -> str:
    # A stage that was idle had read its switch alone: that one changed, and the others are no news.
    known = {name: values for name, values in changed.items() if name in flatten(made)} or changed
    return ", ".join(f"{name} was {before!r} and is now {now!r}" for name, (before, now) in known.items())


def descendants(stage: str) -> set[str]:
    """Return the stages that read this one's artifact, directly or through others."""
    found: set[str] = set()
    for name, row in STAGES.items():  # each comes after those that it reads
        if {stage, *found} & {*row.inputs, *row.optional}:
            found.add(name)
    return found


class AtWork(BaseModel):
    """A stage at work."""

    stage: str
    key: str  # of the artifact that it makes
    progress: str  # the key of its checkpoints, where a training writes metrics.jsonl until its artifact is committed
    since: float  # when this try began, in seconds since 1970
    planned_steps: int | None = None  # of a training, once they are known; it may stop early


@contextmanager
def at_work(run: Path, work: AtWork) -> Iterator[Callable[[int], None]]:
    """Record that a stage is at work until the end of the context, and yield a function that adds the planned steps.

    A process that is killed leaves its record, and the next try of the stage replaces it. The record is a remnant
    unless the Airflow task is running, or without Airflow, if run.json has an entry of the stage that ended after
    `since`. A record that cannot be written does not stop the work.
    """
    file = run / AT_WORK / f"{work.stage}.json"
    _write_work(file, work)
    try:
        yield lambda steps: _write_work(file, work.model_copy(update={"planned_steps": steps}))
    finally:
        with suppress(OSError, ValueError):
            if AtWork.model_validate_json(file.read_bytes()).since == work.since:  # else it is the next try's
                file.unlink()


def _write_work(file: Path, work: AtWork) -> None:
    try:
        file.parent.mkdir(exist_ok=True)
        write_json(file, work.model_dump())
    except OSError as error:
        log.warning("%s cannot be written, so the panel does not show that %s is at work: %s", file, work.stage, error)
