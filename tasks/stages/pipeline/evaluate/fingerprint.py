"""What the stage evaluate reads besides its inputs."""

from __future__ import annotations

import json

from include.experiment import Experiment
from include.runs import Run


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the gate's thresholds, because the report shows them."""
    return json.dumps(experiment.thresholds, sort_keys=True)
