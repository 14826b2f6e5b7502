"""What MLflow is told of a run: parameters, metrics and tags, out of its record and its artifacts."""

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

#: Of a training as a whole; the others stand in the steps' metrics, or are the same in all runs.
_TRAINING = ("rows_per_second", "memory", "memory_reserved", "steps", "padding_share")
#: What became of the model in a run of `retrain`: stage to the key of its result, which is the tag's name, too.
_OUTCOMES = {"challenge": "outcome", "register": "version", "promote": "decision"}
#: MLflow's name for the code's revision, which its page shows.
_COMMIT = "mlflow.source.git.commit"


class Point(NamedTuple):
    """A metric's value at a step, with the time of the artifact that it is from, in milliseconds."""

    key: str
    value: float
    timestamp: int
    step: int


@dataclass(frozen=True)
class Account:
    """A run as MLflow keeps it.

    Attributes:
        identity: of the run's folder, 16 hexadecimal digits.
        name: the folder's.
        task: which has an MLflow experiment of its own, for only its runs share metrics.
        status: FINISHED, FAILED or KILLED; RUNNING, where it is told of before its end.
        ended: when the run's record was last written, in milliseconds.
        params: section.field to value. MLflow never changes one.
        points: train's metrics over steps, evaluate's, and what the stages cost.
        tags: what else is known.
        state: the digest of its record.
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


def account(run: Run, record: Record) -> Account:
    """Everything to be told of the run. Raises BadInput when an artifact of it is damaged."""
    artifacts = {name: run.store.find(name, entry.key) for name, entry in record.pipeline.items() if entry.key}
    there = {name: artifact for name, artifact in artifacts.items() if artifact is not None}
    return Account(
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
    """Train's metrics.jsonl; a line has either the training's values or the dev split's metrics."""
    if "train" not in artifacts:
        return
    made, file = _time(artifacts["train"]), artifacts["train"].path / "metrics.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines():
        values = json.loads(line)
        step, group = values.pop("step"), "train" if "loss" in values else "dev"
        yield from (Point(f"{group}/{key}", value, made, step) for key, value in _numbers(values))


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
    if "gate" in artifacts:  # it came to a verdict
        tags["gate"] = "failed" if record.pipeline["gate"].exit_code else "passed"
    for name, key in _OUTCOMES.items():
        if name in artifacts:
            tags[key] = str(record.pipeline[name].result[key])
    return tags | {f"arm.{key}": str(value) for key, value in record.arm.items()}


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Those that were measured: what is not finite is null in JSON."""
    return ((key, float(value)) for key, value in values.items() if isinstance(value, int | float))


def _time(artifact: Artifact) -> int:
    return int(Path(artifact.path, MANIFEST).stat().st_mtime * 1000)
