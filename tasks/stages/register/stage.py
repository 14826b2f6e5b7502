"""The stage register: add a version to the registered model, created from the run in MLflow, with its package."""

from __future__ import annotations

import logging
from dataclasses import replace

from include.artifacts import locked
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome
from tasks.stages.register.entry import tags
from tasks.tracking.loading import PACKAGE, TRAIN
from tasks.tracking.record import read
from tasks.tracking.registry import Registry, now
from tasks.tracking.tracked_run import TrackedRun, tracked_run

#: The tag with the time at which a version was registered.
ENTERED = "entered"

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return when the training was registered.

    If MLflow has no version of it, return the current time, so that the stage runs again even if it ran before.
    """
    version = Registry.of(experiment, run).with_tag(TRAIN, run.artifact("train").manifest.key)
    return now() if version is None else version.tags.get(ENTERED, "")


def run(context: Context) -> Outcome:
    """Register the model.

    Each training has one version. If it is registered again, for example after another challenge, its tags are updated,
    and the package if it was made again. Those of the current champion are kept: the tags document its promotion.
    """
    assert context.manifest is not None  # set by the runner
    train, package = context.inputs["train"], context.inputs["package"]
    registry, tracked = Registry.of(context.experiment, context.run), _tracked(context.run)
    evidence = tags(tracked, context.inputs)
    with locked(context.run.store.root / "track"):  # the stage track uses the same lock, since it writes runs, too
        version = registry.with_tag(TRAIN, train.manifest.key)
        if version is None:
            run_id = registry.server.write(registry.client, tracked).info.run_id
            version = registry.add(run_id, package.path, {ENTERED: context.manifest.fingerprint, **evidence})
        elif version != registry.champion():
            if version.tags.get(PACKAGE) != package.manifest.key:
                registry.upload(version, package.path)
            registry.tag(version, evidence)
    log.info("%s is %s", train.path, version)
    where = {"model": version.model, "version": version.number, "mlflow_run": version.run}
    return Outcome({**where, "train": train.manifest.key})


def _tracked(run: Run) -> TrackedRun:
    """Return the run so far; it is still running, so a missing stage does not mean that it was killed."""
    tracked = tracked_run(run, read(run))
    return replace(tracked, status="RUNNING") if tracked.status == "KILLED" else tracked
