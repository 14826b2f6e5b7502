"""What the stage register reads besides its inputs."""

from __future__ import annotations

from include.experiment import Experiment
from include.runs import Run
from tasks.stages.lifecycle.register.entry import ENTERED, identity
from tasks.tracking.registry import Registry, now


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return when the training was registered with this package.

    If MLflow has no such version, return the current time, so that the stage runs again even if it ran before.
    """
    version = Registry.of(experiment, run).with_tags(identity(run.artifact("train"), run.artifact("package")))
    return now() if version is None else version.tags.get(ENTERED, "")
