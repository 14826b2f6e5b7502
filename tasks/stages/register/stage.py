"""The stage register: a version of the registered model, made from the run in MLflow, and its MLmodel."""

from __future__ import annotations

import logging
from dataclasses import replace

from include.artifacts import locked
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome
from tasks.stages.register.entry import tags, write_description
from tasks.tracking.account import Account, account
from tasks.tracking.loading import TRAIN
from tasks.tracking.record import read
from tasks.tracking.registry import MLMODEL, Registry, now

#: The tag that says when a version was entered.
ENTERED = "entered"

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """When the training was entered: now, if MLflow has no version of it, for then none that was made before counts."""
    version = Registry.of(experiment, run).with_tag(TRAIN, run.artifact("train").manifest.key)
    return now() if version is None else version.tags.get(ENTERED, "")


def run(context: Context) -> Outcome:
    """Enter the model. A training has one version: entered again, after another challenge say, it gets new tags.

    The champion's tags say how it became that, and stay.
    """
    assert context.manifest is not None  # the runner gives one
    experiment, train, file = context.experiment, context.inputs["train"], context.output / MLMODEL
    registry, told = Registry.of(experiment, context.run), _told(context.run)
    evidence = tags(told, context.inputs)
    with locked(context.run.store.root / "track"):  # as the stage track, which writes runs too
        version = registry.with_tag(TRAIN, train.manifest.key)
        run_id = version.run if version else registry.server.write(registry.client, told).info.run_id
        write_description(file, experiment.task, train, run_id)
        if version is None:
            version = registry.add(run_id, file, {ENTERED: context.manifest.fingerprint, **evidence})
        elif version != registry.champion():
            registry.tag(version, evidence)
    log.info("%s is %s", train.path, version)
    where = {"model": version.model, "version": version.number, "mlflow_run": version.run}
    return Outcome({**where, "train": train.manifest.key, "files": {"description": MLMODEL}})


def _told(run: Run) -> Account:
    """The run as far as it has come."""
    told = account(run, read(run))
    return replace(told, status="RUNNING") if told.status == "KILLED" else told
