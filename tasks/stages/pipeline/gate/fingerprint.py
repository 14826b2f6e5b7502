"""What the stage gate reads besides its inputs."""

from __future__ import annotations

import json

from include.experiment import Experiment
from include.runs import Run


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the thresholds, since those that the experiment does not set come from the task registry."""
    return json.dumps(experiment.thresholds, sort_keys=True)
