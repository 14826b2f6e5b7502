"""The stage track: the run as an MLflow run, and with it earlier ones that MLflow could not be told of."""

from __future__ import annotations

import json
import logging

from include.artifacts import locked
from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput, StageError
from tasks.context import Context, Outcome
from tasks.tracking.account import account
from tasks.tracking.record import others, read
from tasks.tracking.server import Server

NO_MODEL = "the run made no model: there is nothing to track"

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
    if not own.stages.keys() - {"track"}:
        raise BadInput(f"the run {run.folder.name} has nothing to track yet: run the stage validate first")
    with locked(run.store.root / "track"):  # else two of them could write one run twice
        client = server.connect()
        written = server.write(client, account(run, own)) if own.pipeline else None  # it only took in data, say
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
    where = {"mlflow_run": "", "url": "", "uri": server.uri, "state": own.state, "note": NO_MODEL}
    if written is not None:
        where |= {"mlflow_run": written.info.run_id, "url": server.url(written), "note": own.status}
    log.info("MLflow at %s: %s %s, %d more caught up", server.uri, where["mlflow_run"], where["note"], len(caught_up))
    return Outcome({**where, "caught_up": caught_up, "warnings": warnings})
