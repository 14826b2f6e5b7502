"""What the stage publish reads besides its inputs."""

from __future__ import annotations

from datetime import UTC, datetime

from include.experiment import Experiment
from include.runs import Run


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the time if there is something to upload, because the repository may have changed since then."""
    return datetime.now(UTC).isoformat() if experiment.publication.repository else ""
