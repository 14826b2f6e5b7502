"""The registry's entry for a model: the evidence as tags, and the signature in MLmodel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from include.artifacts import MANIFEST, Artifact, sha256
from include.glue import Task
from tasks.tracking.loading import EVALUATE, MANIFEST_SHA256, TRAIN
from tasks.tracking.tracked_run import TrackedRun

#: Keys of a challenge's result that were added by the runner or that have a separate tag.
_NOT_OF_THE_CHALLENGE = ("stage", "artifact", "seconds", "files", "outcome")


def tags(tracked: TrackedRun, inputs: Mapping[str, Artifact]) -> dict[str, str]:
    """Return the tags of a version: its artifacts, its metrics, the gate, the challenge, and the data.

    Args:
        tracked: The run as MLflow stores it.
        inputs: The artifacts of train, evaluate, gate and challenge.
    """
    train, evaluate = inputs["train"], inputs["evaluate"]
    metrics = {f"metrics.{name}": value for name, value in evaluate.manifest.result["metrics"].items()}
    challenge = dict(inputs["challenge"].manifest.result)
    compared = {f"challenge.{name}": value for name, value in challenge.items() if name not in _NOT_OF_THE_CHALLENGE}
    values = {
        TRAIN: train.manifest.key,
        "train.artifact": relative(train),
        MANIFEST_SHA256: sha256(train.path / MANIFEST),
        EVALUATE: evaluate.manifest.key,
        **metrics,
        "gate": "passed",
        "gate.checks": "; ".join(map(_check, inputs["gate"].manifest.result["checks"])),
        "challenge": challenge["outcome"],
        **compared,
        "data.version": tracked.tags["data.version"],
        "data.path": tracked.params["data.path"],
        "revision": train.manifest.revision,
        "run": tracked.name,
    }
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def write_description(file: Path, task: Task, train: Artifact, run: str) -> None:
    """Write MLmodel: the signature, the MLflow run, and the path of the model's files relative to the home.

    Args:
        file: The file to write.
        task: The task, which determines the signature.
        train: The train artifact.
        run: The id of the MLflow run.
    """
    from mlflow.models import Model, ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, Schema

    inputs = Schema([ColSpec(DataType.string, name) for name in ("sentence", "sentence2")[: len(task.sentences)]])
    outputs = Schema([ColSpec(DataType.double, "score")])
    if task.kind == "classification":
        outputs = Schema([ColSpec(DataType.string, "label"), ColSpec(Array(DataType.double), "probabilities")])
    model = Model(run_id=run, signature=ModelSignature(inputs, outputs))
    seal = sha256(train.path / MANIFEST)
    model.add_flavor("spark_bert", train=train.manifest.key, path=f"{relative(train)}/model", manifest_sha256=seal)
    model.save(str(file))


def relative(artifact: Artifact) -> str:
    """Return the path of an artifact relative to its home."""
    return artifact.path.relative_to(artifact.path.parents[2]).as_posix()


def _check(check: Mapping[str, Any]) -> str:
    return f"{check['key']} = {check['threshold']}: {check['value']:.4f}"
