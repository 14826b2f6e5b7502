"""What the registry is told of a model: its evidence as tags, and its signature."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from include.artifacts import MANIFEST, Artifact, sha256
from include.glue import Task
from tasks.tracking.account import Account
from tasks.tracking.loading import EVALUATE, SEAL, TRAIN

#: What the runner adds to a challenge's result, and what has a tag of its own.
_NOT_OF_THE_CHALLENGE = ("stage", "artifact", "seconds", "files", "outcome")


def tags(told: Account, inputs: Mapping[str, Artifact]) -> dict[str, str]:
    """The evidence: what the model is, that the gate let it pass, how it did against the champion, out of what data."""
    train, evaluate = inputs["train"], inputs["evaluate"]
    metrics = {f"metrics.{name}": value for name, value in evaluate.manifest.result["metrics"].items()}
    challenge = dict(inputs["challenge"].manifest.result)
    compared = {f"challenge.{name}": value for name, value in challenge.items() if name not in _NOT_OF_THE_CHALLENGE}
    values = {
        TRAIN: train.manifest.key,
        "train.artifact": relative(train),
        SEAL: sha256(train.path / MANIFEST),
        EVALUATE: evaluate.manifest.key,
        **metrics,
        "gate": "passed",
        "gate.checks": "; ".join(map(_check, inputs["gate"].manifest.result["checks"])),
        "challenge": challenge["outcome"],
        **compared,
        "data.version": told.tags["data.version"],
        "data.path": told.params["data.path"],
        "revision": train.manifest.revision,
        "run": told.name,
    }
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def write_description(file: Path, task: Task, train: Artifact, run: str) -> None:
    """Write MLmodel: what goes in and comes out, of which MLflow run it is, and where its files lie below the home."""
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
    """Where the artifact lies below its home."""
    return artifact.path.relative_to(artifact.path.parents[2]).as_posix()


def _check(check: Mapping[str, Any]) -> str:
    return f"{check['key']} = {check['threshold']}: {check['value']:.4f}"
