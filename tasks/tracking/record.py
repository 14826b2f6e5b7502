"""A run as MLflow stores it, taken from its record and artifacts, and whether that has been done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from include.artifacts import MANIFEST, Artifact
from include.runs import ARM, Entry, Recorded, Run
from include.stages import PIPELINE, BadInput, ExitCode

#: The tracked stages in order: those that create the model, and those that decide about it in a run of `retrain`.
_TRACKED = (*PIPELINE, "champion", "challenge", "register", "promote")
#: What MLflow is not told of a stage.
_UNTRACKED = {"started", "ended", "reused"}
#: The values of train's result that become metrics. The others are already logged per step or equal in all runs.
_TRAINING = ("rows_per_second", "memory", "memory_reserved", "steps", "padding_share")
#: Stages of `retrain` that decide about the model, with the key of the result that becomes a tag of the same name.
_OUTCOMES = {"challenge": "outcome", "register": "version", "promote": "decision"}
#: MLflow's tag for the revision of the code, which its page shows.
_COMMIT = "mlflow.source.git.commit"


class Record(Recorded):
    """The content of a run's run.json and, for an arm of an ablation, of its arm.json."""

    arm: dict[str, Any] = Field(default_factory=dict)

    @property
    def pipeline(self) -> dict[str, Entry]:
        """The tracked stages that the run has finished or failed, in order, with a rollback of its last promotion.

        A run whose experiment was refused has none, because MLflow stores runs by their tasks and parameters.
        """
        found = {name: self.stages[name] for name in _TRACKED if name in self.stages and self.experiment}
        promote, rollback = (self.stages.get(name) for name in ("promote", "rollback"))
        # A promotion after a rollback in the same run leaves the rollback in the record.
        if promote and rollback and (rollback.ended or 0) > (promote.ended or 0):
            found["rollback"] = rollback
        return found

    @property
    def status(self) -> str:
        """FINISHED, FAILED (a rollback counts, as in Airflow), or KILLED: a stage is missing, and none has failed.

        A trial of a search ends with the gate, or pauses for good.
        """
        if self.search and any(entry.exit_code == ExitCode.STOPPED for entry in self.pipeline.values()):
            return "KILLED"
        if "rollback" in self.pipeline or any(entry.exit_code for entry in self.pipeline.values()):
            return "FAILED"
        last = {"export", "promote", *(["gate"] if self.search else [])}
        return "FINISHED" if self.stages.keys() & last or self.arm else "KILLED"

    @property
    def state(self) -> str:
        """A digest of 16 hexadecimal digits that changes whenever there is something new to track."""
        stages = {name: entry.model_dump(exclude=_UNTRACKED) for name, entry in self.pipeline.items()}
        whole = json.dumps([self.experiment, stages, self.arm, self.status], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()[:16]


def read(run: Run) -> Record:
    """Read the record of a run."""
    arm = run.folder / ARM
    try:
        told = json.loads(arm.read_text(encoding="utf-8")) if arm.is_file() else {}
        return Record.model_validate({**run.record(), "arm": told})
    except ValueError as error:
        raise BadInput(f"{arm} is damaged: remove {run.folder} and run the stages again") from error


def newest_address(runs: Path) -> str:
    """Return the address of the MLflow that a run below the folder was tracked in last; "" if there is none."""
    newest, address = 0.0, ""
    for file in runs.glob("*/run.json"):
        with suppress(BadInput, OSError):  # an unreadable record says nothing about where the run was tracked
            track = read(Run(file.parent)).stages.get("track")
            time = file.stat().st_mtime
            if track and track.result.get("uri") and time > newest:
                newest, address = time, str(track.result["uri"])
    return address


def others(run: Run, uri: str) -> tuple[dict[str, str], list[str]]:
    """Return name to state of the home's other ended runs that are not tracked, and a line per unreadable run."""
    found: dict[str, str] = {}
    warnings: list[str] = []
    for file in sorted(run.folder.parent.glob("*/run.json")):
        if file == run.file:
            continue
        try:
            record = read(Run(file.parent))
        except (BadInput, OSError) as error:
            warnings.append(f"{file.parent.name} is not tracked: {error}")
            continue
        track = record.stages.get("track")
        written = track and track.result.get("state") == record.state and track.result.get("uri") == uri
        ended = record.status != "KILLED" or track  # a run whose own tracking was tried has probably ended
        if record.pipeline and ended and not written:
            found[file.parent.name] = record.state
    return found, warnings


class Point(NamedTuple):
    """The value of a metric at an optimizer step, or 0 for the whole run, and its time in milliseconds since 1970."""

    key: str
    value: float
    timestamp: int
    step: int


@dataclass(frozen=True)
class TrackedRun:
    """A run as MLflow stores it.

    Attributes:
        identity: A digest of the path of the run's folder.
        task: The name of the task. Each task has its own MLflow experiment, because only its runs share metrics.
        ended: When the run's record was last written, in milliseconds since 1970.
        params: `section.field` to value. MLflow cannot change them later.
    """

    identity: str
    name: str
    task: str
    status: str
    ended: int
    params: dict[str, str]
    points: list[Point]
    tags: dict[str, str]
    state: str


def tracked_run(run: Run, record: Record) -> TrackedRun:
    """Collect everything that MLflow stores about a run."""
    artifacts = {name: run.store.find(name, entry.key) for name, entry in record.pipeline.items() if entry.key}
    there = {name: artifact for name, artifact in artifacts.items() if artifact is not None}
    return TrackedRun(
        hashlib.sha256(str(run.folder).encode()).hexdigest()[:16],
        run.folder.name,
        str(record.experiment.get("data", {}).get("task")),
        record.status,
        int(run.file.stat().st_mtime * 1000),
        _params(record.experiment),
        [*_steps(there), *_totals(record.pipeline, there)],
        _tags(run, record, there),
        record.state,
    )


def _params(experiment: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    fields = {f"{name}.{field}": value for name, section in experiment.items() for field, value in section.items()}
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in fields.items()}


def _steps(artifacts: Mapping[str, Artifact]) -> Iterator[Point]:
    """Yield the points of train's metrics.jsonl, whose lines have either training values or dev metrics."""
    if "train" not in artifacts:
        return
    folder = artifacts["train"].path
    made = (folder / MANIFEST).stat().st_mtime
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        values = json.loads(line)
        step, group = values.pop("step"), "train" if "loss" in values else "dev"
        measured = int(values.pop("time", made) * 1000)  # trainings of version 0.2.0 recorded no times
        yield from (Point(f"{group}/{key}", value, measured, step) for key, value in _numbers(values))


def _totals(stages: Mapping[str, Entry], artifacts: Mapping[str, Artifact]) -> Iterator[Point]:
    for name, artifact in artifacts.items():
        result, made = stages[name].result, _time(artifact)
        if name == "train":
            wanted = {key: result.get(key) for key in _TRAINING}
            yield from (Point(f"training/{key}", value, made, 0) for key, value in _numbers(wanted))
        if name == "evaluate":
            yield from (Point(f"evaluate/{key}", value, made, 0) for key, value in _numbers(result["metrics"]))
        yield from (Point(f"seconds/{name}", value, made, 0) for _, value in _numbers({"": result.get("seconds")}))


def _tags(run: Run, record: Record, artifacts: Mapping[str, Artifact]) -> dict[str, str]:
    tags = {"folder": str(run.folder)}
    for name, entry in record.pipeline.items():
        says = {"key": entry.key, "artifact": entry.path, "exit_code": entry.exit_code, "message": entry.message}
        tags |= {f"{name}.{key}": str(value) for key, value in says.items() if value != ""}
    if artifacts:
        tags[_COMMIT] = list(artifacts.values())[-1].manifest.revision
    if "validate" in artifacts:
        manifest = artifacts["validate"].manifest
        tags |= {"data.version": manifest.key, "data.fingerprint": manifest.fingerprint}
    if "gate" in artifacts:  # the gate has reached a verdict
        tags["gate"] = "failed" if record.pipeline["gate"].exit_code else "passed"
    for name, key in _OUTCOMES.items():
        if name in artifacts:
            tags[key] = str(record.pipeline[name].result[key])
    if "rollback" in artifacts:
        tags["rolled_back"] = f"to version {record.pipeline['rollback'].result['version']}"
    return tags | {f"arm.{key}": str(value) for key, value in record.arm.items()}


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    return ((key, float(value)) for key, value in values.items() if isinstance(value, int | float))


def _time(artifact: Artifact) -> int:
    return int((artifact.path / MANIFEST).stat().st_mtime * 1000)
