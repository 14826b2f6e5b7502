"""The stage track: the run as an MLflow run, and with it earlier ones that MLflow could not be told of."""

from __future__ import annotations

import json
import logging

from include.artifacts import locked
from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput, StageError
from tasks.context import Context, Outcome
from tasks.track.account import account
from tasks.track.record import others, read
from tasks.track.server import Server

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """The state of this run, and of others that are to be caught up, and where MLflow is."""
    uri = Server(run.store.root.parent).uri
    waiting, warnings = others(run, uri)
    states = {folder.name: record.state for folder, record in waiting.items()}
    return json.dumps([uri, run.folder.name, read(run).state, states, warnings], sort_keys=True)


def run(context: Context) -> Outcome:
    """Write the runs to MLflow. Raises Transient when it takes not even the one that asked; others are warned of."""
    run = context.run
    server, own = Server(run.store.root.parent), read(run)
    if not own.pipeline:
        raise BadInput(f"the run {run.folder.name} has nothing to track yet: run the stage validate first")
    with locked(run.store.root / "track"):  # else two of them could write one run twice
        client = server.connect()
        written = server.write(client, account(run, own))
        waiting, warnings = others(run, server.uri)
        caught_up = []
        for folder, record in waiting.items():
            try:
                server.write(client, account(Run(folder), record))
                caught_up.append(folder.name)
            except (StageError, OSError, ValueError) as error:
                warnings.append(f"{folder.name} is not tracked: {error}")
    for warning in warnings:
        log.warning("%s", warning)
    log.info("MLflow run %s (%s) at %s, %d more caught up", written.info.run_id, own.status, server.uri, len(caught_up))
    where = {"mlflow_run": written.info.run_id, "url": server.url(written), "uri": server.uri, "state": own.state}
    return Outcome({**where, "caught_up": caught_up, "warnings": warnings})
