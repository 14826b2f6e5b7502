"""What the stage promote reads besides its inputs."""

from __future__ import annotations

import json
from pathlib import Path

from include.experiment import Experiment
from include.runs import DECISION, TRIAL, Run
from tasks.tracking.champions import Champions


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the decision, the trial, the champion, and the version's tags `promoted` and `rolled_back`.

    The tags are included because a version may be promoted again after a rollback.
    """
    registry, options = Champions.of(experiment, run), experiment.retraining
    champion, version = registry.champion(), registry.version(run.artifact("register").manifest.result["version"])
    decision = _text(run.folder / DECISION) if options.approval else ""
    trial = _text(run.folder / TRIAL) if options.trial_texts else ""
    moved = [version.tags.get(name, "") if version else "" for name in ("promoted", "rolled_back")]
    return json.dumps([decision, trial, champion.number if champion else "", *moved])


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""
