"""What the stage leaderboard reads besides its inputs."""

from __future__ import annotations

import json

from include.experiment import Experiment
from include.runs import Run
from tasks.stages.studies.leaderboard.entries import find_beside


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the runs that are compared, with their artifacts, and the warnings about the others."""
    found = find_beside(run)
    return json.dumps([[[entry.run, entry.keys] for entry in found.entries], found.warnings], sort_keys=True)
