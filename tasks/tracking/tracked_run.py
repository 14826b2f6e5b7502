"""A run as MLflow stores it: parameters, metrics and tags, taken from the run's record and artifacts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from include.artifacts import MANIFEST, Artifact
from include.runs import Entry, Run
from tasks.tracking.record import Record

#: The values of train's result that become metrics. The others are already logged per step or equal in all runs.
_TRAINING = ("rows_per_second", "memory", "memory_reserved", "steps", "padding_share")
#: Stages of `retrain` that decide about the model, with the key of the result that becomes a tag of the same name.
_OUTCOMES = {"challenge": "outcome", "register": "version", "promote": "decision"}
#: MLflow's tag for the revision of the code, which its page shows.
_COMMIT = "mlflow.source.git.commit"


class Point(NamedTuple):
    """The value of a metric at a step.

    Attributes:
        timestamp: When it was measured, or when its artifact was committed, in milliseconds since 1970.
        step: The optimizer step; 0 for values of the whole run.
    """

    key: str
    value: float
    timestamp: int
    step: int


@dataclass(frozen=True)
class TrackedRun:
    """A run as MLflow stores it.

    Attributes:
        identity: A digest of the path of the run's folder, 16 hexadecimal digits.
        task: The name of the task. Each task has its own MLflow experiment, because only its runs share metrics.
        status: FINISHED, FAILED or KILLED; RUNNING if the run is tracked before its end.
        ended: When the run's record was last written, in milliseconds since 1970.
        params: `section.field` to value. MLflow cannot change a param later.
        points: The metrics of train per step, the metrics of evaluate, and the duration of each stage in seconds.
        tags: All other facts about the run.
        state: The digest of the run's record.
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
    """Collect everything that MLflow stores about a run.

    Raises:
        BadInput: If one of its artifacts is damaged.
    """
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
    for line in (artifacts["train"].path / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        values = json.loads(line)
        step, group = values.pop("step"), "train" if "loss" in values else "dev"
        measured = int(values.pop("time") * 1000)
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
    """Yield the values that are numbers; values that were not finite are null in JSON."""
    return ((key, float(value)) for key, value in values.items() if isinstance(value, int | float))


def _time(artifact: Artifact) -> int:
    return int(Path(artifact.path, MANIFEST).stat().st_mtime * 1000)
