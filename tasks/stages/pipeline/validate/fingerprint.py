"""What the stage validate reads besides its inputs."""

from __future__ import annotations

from include.experiment import Experiment
from include.runs import Run
from tasks.sources import open_source


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return a string that changes whenever the raw data changes.

    Raises:
        BadInput: If the data is missing.
    """
    return open_source(experiment).fingerprint()
