"""What the stage promote reads besides its inputs."""

from __future__ import annotations

import json
import os

from include.experiment import Experiment
from include.runs import ANSWERS, Run
from tasks.tracking.champions import Champions


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return what Airflow has told, the champion, and the version's tags `promoted` and `rolled_back`.

    The tags are included because a version may be promoted again after a rollback.
    """
    registry = Champions.of(experiment, run)
    champion, version = registry.champion(), registry.version(run.artifact("register").manifest.result["version"])
    moved = [version.tags.get(name, "") if version else "" for name in ("promoted", "rolled_back")]
    return json.dumps([os.environ.get(ANSWERS, ""), champion.number if champion else "", *moved])
