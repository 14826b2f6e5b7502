"""What the stage track reads besides its inputs."""

from __future__ import annotations

import json

from include.experiment import Experiment
from include.runs import Run
from tasks.tracking.record import others, read
from tasks.tracking.server import Server


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the address of MLflow, the state of this run, and the states of earlier runs that are not tracked yet."""
    uri = Server(run.store.root.parent).uri
    waiting, warnings = others(run, uri)
    states = {folder.name: record.state for folder, record in waiting.items()}
    return json.dumps([uri, run.folder.name, read(run).state, states, warnings], sort_keys=True)
