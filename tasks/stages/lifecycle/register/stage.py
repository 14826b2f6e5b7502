"""The stage register: add a version to the registered model, created from the run in MLflow, with its package."""

from __future__ import annotations

import logging
from dataclasses import replace

from include.artifacts import locked
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome
from tasks.stages.lifecycle.register.entry import ENTERED, identity, tags
from tasks.tracking.loading import TRAIN
from tasks.tracking.record import read
from tasks.tracking.registry import ROLLED_BACK, Registry, now
from tasks.tracking.tracked_run import TrackedRun, tracked_run

log = logging.getLogger(__name__)


def plan(experiment: Experiment, run: Run) -> str:
    """Return when the training was registered with this package.

    If MLflow has no such version, return the current time, so that the stage runs again even if it ran before.
    """
    version = Registry.of(experiment, run).with_tags(identity(run.artifact("train"), run.artifact("package")))
    return now() if version is None else version.tags.get(ENTERED, "")


def run(context: Context, entered: str) -> Outcome:
    """Register the model.

    A training with its package has one version, whose files never change. If it is registered again, for example after
    another challenge, its tags are updated, except for the champion's, which document its promotion. Another package
    of the same training is another version. If the newest one before it was rolled back, so is this one.
    """
    train, package = context.inputs["train"], context.inputs["package"]
    registry, tracked = Registry.of(context.experiment, context.run), _tracked(context.run)
    evidence = tags(tracked, context.inputs)
    with locked(context.run.store.root / "track"):  # the stage track uses the same lock, since it writes runs, too
        version = registry.with_tags(identity(train, package))
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
