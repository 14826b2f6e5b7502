"""The stage register: add a version to the registered model, created from the run in MLflow, with its package."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from include.artifacts import MANIFEST, Artifact, locked, sha256
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome
from tasks.tracking.loading import EVALUATE, MANIFEST_SHA256, PACKAGE, PACKAGE_SHA256, TRAIN
from tasks.tracking.record import TrackedRun, read, tracked_run
from tasks.tracking.registry import ROLLED_BACK, Registry, now

log = logging.getLogger(__name__)

#: The tag with the time at which a version was registered.
ENTERED = "entered"
#: Keys of a challenge's result that were added by the runner or that have a separate tag.
_NOT_OF_THE_CHALLENGE = ("stage", "artifact", "seconds", "files", "outcome")


def plan(experiment: Experiment, run: Run) -> str:
    """Return when the training was registered with this package.

    If MLflow has no such version, return the current time, so that the stage runs again even if it ran before.
    """
    version = Registry.of(experiment, run).with_tags(_identity(run.artifact("train"), run.artifact("package")))
    return now() if version is None else version.tags.get(ENTERED, "")


def run(context: Context, entered: str) -> Outcome:
    """Register the model.

    A training with its package has one version, whose files never change. If it is registered again, for example after
    another challenge, its tags are updated, except for the champion's, which document its promotion. Another package
    of the same training is another version. If the newest one before it was rolled back, so is this one.
    """
    train, package = context.inputs["train"], context.inputs["package"]
    registry, tracked = Registry.of(context.experiment, context.run), _tracked(context.run)
    evidence = _tags(tracked, context.inputs)
    with locked(context.run.store.root / "track"):  # the stage track uses the same lock, since it also writes runs
        version = registry.with_tags(_identity(train, package))
        if version is None:
            run_id = registry.server.write(registry.client, tracked).info.run_id
            added = {ENTERED: entered, **_rolled_back(registry, train.manifest.key), **evidence}
            version = registry.add(run_id, package.path, added)
        elif version != registry.champion():
            registry.tag(version, evidence)
        if version != registry.champion():
            registry.set_challenger(version)
    log.info("%s is %s", train.path, version)
    where = {"model": version.model, "version": version.number, "mlflow_run": version.run}
    return Outcome({**where, "train": train.manifest.key})


def _rolled_back(registry: Registry, train: str) -> dict[str, str]:
    """Return the tag of a rollback if the newest version of a training was rolled back and not promoted again."""
    version = registry.with_tags({TRAIN: train})
    tags = {} if version is None else version.tags
    when = tags.get(ROLLED_BACK, "")
    return {ROLLED_BACK: when} if when > tags.get("promoted", "") else {}


def _tracked(run: Run) -> TrackedRun:
    """Return the run so far; it is still running, so a missing stage does not mean that it was killed."""
    tracked = tracked_run(run, read(run))
    return replace(tracked, status="RUNNING") if tracked.status == "KILLED" else tracked


def _tags(tracked: TrackedRun, inputs: Mapping[str, Artifact]) -> dict[str, str]:
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


def _identity(train: Artifact, package: Artifact) -> dict[str, str]:
    """Return the tags that tell a version from others: its training and its package."""
    return {TRAIN: train.manifest.key, PACKAGE_SHA256: sha256(package.path / MANIFEST)}


def _relative(artifact: Artifact) -> str:
    """Return the path of an artifact relative to its home."""
    return artifact.path.relative_to(artifact.path.parents[2]).as_posix()


def _check(check: Mapping[str, Any]) -> str:
    return f"{check['key']} = {check['threshold']}: {check['value']:.4f}"
