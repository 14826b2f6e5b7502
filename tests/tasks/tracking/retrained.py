"""Runs of `retrain` on made-up models: their registry is MLflow's, only what they are held against is made up."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from include.artifacts import Artifact, Manifest, artifact_key
from include.experiment import Experiment
from include.runs import ANSWERS, Run
from include.stages import STAGES, ExitCode
from tasks.runner import run_stage
from tasks.tracking.champions import Champions
from tasks.tracking.registry import Version
from tests.tasks.stages.upkeep.track.runs import made

MODEL = "spark-bert-movie-reviews"


def stage(name: str, run: Run, **told: Any) -> Artifact:
    """Run a stage as the run's experiment has it, and tell it what Airflow's tasks have returned."""
    with mock.patch.dict(os.environ, {ANSWERS: json.dumps(told)} if told else {}):
        return run_stage(name, experiment_of(run), run)


def retrain(home: Path, name: str, outcome: str = "", **changes: Any) -> Run:
    """A run down to promote; a model without a champion before it is the first."""
    run = challenged(home, name, outcome, **changes)
    stage("register", run)
    stage("promote", run)
    return run


def challenged(home: Path, name: str, outcome: str = "", package: str = "", **changes: Any) -> Run:
    """A run down to a challenge with the outcome; changes are fields of its experiment (section__field).

    If `package` names a file, another package of the same training has this file and no others.
    """
    run = made(home, name, last="package", **changes)
    if package:
        _repack(run, package)
    champion = stage("champion", run).manifest.result["version"]
    outcome = outcome or ("not worse" if champion else "first")
    result = {"outcome": outcome, "champion": champion, "difference": 0.01, "p": 0.4, "metrics": {"accuracy": 0.8}}
    _commit(run, "challenge", result, ExitCode.GATE_FAILED if outcome == "worse" else ExitCode.DONE)
    return run


def ingested(home: Path, name: str) -> Run:
    """A run that found nothing new."""
    run = Run(home / "runs" / name)
    _commit(run, "ingest", {"new": False}, ExitCode.DONE)
    return run


def answer(decision: str, version: str = "2", **changes: Any) -> dict[str, Any]:
    """Return a person's answer as Airflow has it."""
    about = {"at": "2026-01-31T12:00:00+00:00", "timed_out": False, "model": MODEL, "version": version}
    return {"decision": decision, "by": "Ada", **about, **changes}


def registry(run: Run) -> Champions:
    """The registered model of the run, as a person who may move its champion sees it."""
    return Champions.of(experiment_of(run), run)


def version(run: Run, number: str) -> Version:
    """A version that must be there."""
    found = registry(run).version(number)
    assert found is not None
    return found


def champion(run: Run) -> str:
    """The champion's number now, "" without one."""
    found = registry(run).champion()
    return found.number if found else ""


def experiment_of(run: Run) -> Experiment:
    """What the run's record says."""
    return Experiment.model_validate(run.record().get("experiment", {}))


def _repack(run: Run, file: str) -> None:
    manifest = replace(run.artifact("package").manifest, key="another-package-", files={})
    with run.store.writing("package", manifest.key) as folder:
        (folder / file).write_text("other")
        run.add(run.store.commit(folder, manifest), experiment_of(run))


def _commit(run: Run, name: str, result: dict[str, Any], code: ExitCode) -> None:
    experiment = experiment_of(run)
    inputs = {needed: run.artifact(needed).manifest.key for needed in STAGES[name].inputs}
    part = STAGES[name].part(experiment)
    key = artifact_key(1, part, inputs, str(result))
    with run.store.writing(name, key) as folder:
        manifest = Manifest(name, key, 1, part, inputs, "", "a1b2c3", result, int(code), code.name)
        run.add(run.store.commit(folder, manifest), experiment)
