"""What the stage study reads besides its inputs."""

from __future__ import annotations

import json

from include.experiment import Experiment
from include.runs import Run
from tasks.stages.studies.study.arms import find


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the runs and artifacts that are currently the study's arms, and the warnings about unreadable runs."""
    found = find(run.folder.parent, experiment.study.name)
    arms = [{**arm.metadata.model_dump(mode="json"), **arm.keys} for arm in found.arms]
    return json.dumps([arms, found.warnings], sort_keys=True)
