"""The registry's entry for a model: the evidence as tags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from include.artifacts import MANIFEST, Artifact, sha256
from tasks.tracking.loading import EVALUATE, MANIFEST_SHA256, PACKAGE, PACKAGE_SHA256, TRAIN
from tasks.tracking.tracked_run import TrackedRun

#: The tag with the time at which a version was registered.
ENTERED = "entered"
#: Keys of a challenge's result that were added by the runner or that have a separate tag.
_NOT_OF_THE_CHALLENGE = ("stage", "artifact", "seconds", "files", "outcome")


def tags(tracked: TrackedRun, inputs: Mapping[str, Artifact]) -> dict[str, str]:
    """Return the tags of a version: its artifacts, its metrics, its forms, the gate, the challenge, and the data."""
    train, evaluate, package = inputs["train"], inputs["evaluate"], inputs["package"]
    metrics = {f"metrics.{name}": value for name, value in evaluate.manifest.result["metrics"].items()}
    challenge = inputs["challenge"].manifest.result
    compared = {f"challenge.{name}": value for name, value in challenge.items() if name not in _NOT_OF_THE_CHALLENGE}
    values = {
        TRAIN: train.manifest.key,
        "train.artifact": _relative(train),
        MANIFEST_SHA256: sha256(train.path / MANIFEST),
        EVALUATE: evaluate.manifest.key,
        **metrics,
        PACKAGE: package.manifest.key,
        PACKAGE_SHA256: sha256(package.path / MANIFEST),
        "package.artifact": _relative(package),
        "package.served": package.manifest.result["served"],
        "package.forms": ", ".join(form["name"] for form in package.manifest.result["forms"] if form["offered"]),
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


def identity(train: Artifact, package: Artifact) -> dict[str, str]:
    """Return the tags that tell a version from others: its training and its package."""
    return {TRAIN: train.manifest.key, PACKAGE_SHA256: sha256(package.path / MANIFEST)}


def _relative(artifact: Artifact) -> str:
    """Return the path of an artifact relative to its home."""
    return artifact.path.relative_to(artifact.path.parents[2]).as_posix()


def _check(check: Mapping[str, Any]) -> str:
    return f"{check['key']} = {check['threshold']}: {check['value']:.4f}"
