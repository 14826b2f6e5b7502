"""The stage track: write the run to MLflow, and also earlier runs that could not be written before."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from include.artifacts import locked
from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput, StageError
from tasks.context import Context, Outcome
from tasks.tracking.record import others, read, tracked_run
from tasks.tracking.server import Server

NO_MODEL = "the run created no model, so there is nothing to track"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """What is to be written: the run's state, earlier runs' states by name, and a line per run that cannot be read."""

    uri: str
    run: str
    state: str
    earlier: dict[str, str]
    warnings: list[str]


def plan(experiment: Experiment, run: Run) -> Plan:
    """Find what is not tracked yet."""
    uri = Server(run.store.root.parent).uri
    return Plan(uri, run.folder.name, read(run).state, *others(run, uri))


def run(context: Context, plan: Plan) -> Outcome:
    """Write this run and earlier untracked runs to MLflow; errors of earlier runs only cause warnings."""
    run = context.run
    server, own = Server(run.store.root.parent), read(run)
    if not own.stages.keys() - {"track"}:
        raise BadInput(f"the run {run.folder.name} has nothing to track yet: run the stage validate first")
    with locked(run.store.root / "track"):  # otherwise two processes could write the same run twice
        client = server.connect()
        # A run without a model, such as one that has only ingested data, is not written.
        written = server.write(client, tracked_run(run, own)) if own.pipeline else None
        caught_up, warnings = [], list(plan.warnings)
        for name in plan.earlier:
            earlier = Run(run.folder.with_name(name))
            try:
                server.write(client, tracked_run(earlier, read(earlier)))  # its record may have grown since the plan
                caught_up.append(name)
            except (StageError, OSError, ValueError) as error:
                warnings.append(f"{name} is not tracked: {error}")
    for warning in warnings:
        log.warning("%s", warning)
    where = {"mlflow_run": "", "url": "", "uri": server.uri, "state": own.state, "note": NO_MODEL}
    if written is not None:
        where |= {"mlflow_run": written.info.run_id, "url": server.url(written), "note": own.status}
    log.info("MLflow at %s: %s %s, %d earlier runs", server.uri, where["mlflow_run"], where["note"], len(caught_up))
    return Outcome({**where, "caught_up": caught_up, "warnings": warnings})
