"""What the stage rollback reads besides its inputs."""

from __future__ import annotations

from include.experiment import Experiment
from include.runs import Run


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the name of the run's folder, because each run rolls back once, regardless of its number of tries.

    If the run has promoted a version, each of its promotions is rolled back once, so the promotion's key is added.
    """
    promotion = run.record()["stages"].get("promote", {}).get("key", "")
    return f"{run.folder.name} {promotion}" if promotion else run.folder.name
