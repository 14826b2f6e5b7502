"""Running one stage: find its inputs, return at once when it is done already, commit what it made.

CONTRIBUTING.md says what the functions of a stage do. The plan is part of the artifact's key: as a text, as JSON (a
dataclass or JSON values), or by its method `fingerprint`. Files that it hashes with `digests.digest` must not have
changed when the work is done. `committed` is also called when the artifact is found, because it may have been missed.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from types import ModuleType
from typing import Any

from include import tracing
from include.artifacts import Artifact, Manifest, artifact_key, revision
from include.experiment import Experiment
from include.named_experiments import changed
from include.runs import DAG_ID, AtWork, Run, at_work, descendants
from include.stages import GROUPS, STAGES, BadInput, StageError, Stopped
from tasks.context import Context, Outcome
from tasks.digests import check_unchanged, noting
from tasks.refusal import explain

log = logging.getLogger(__name__)

#: The inputs with the rows, which may be many gigabytes. All others, such as weights and predictions, are hashed before
#: a stage works with them: no verdict, package or promotion is that of damaged weights.
_ROWS = ("validate", "preprocess")
_PACKAGES = {stage.name: f"tasks.stages.{group}.{stage.name}" for group, stages in GROUPS.items() for stage in stages}


def run_stage(name: str, experiment: Experiment, run: Run, pause: float = 1) -> Artifact:
    """The stage's artifact, made now or found; the run's record points at it, or says why there is none.

    `pause` is the share of its steps after which a training raises Paused.
    """
    if STAGES[name].inputs and not run.folder.exists() and DAG_ID not in os.environ:
        # A mistyped name must not become a run. An Airflow task has the name of its own run.
        raise BadInput(
            f"there is no run {run.folder}: name one that is there, or run the stage {STAGES[name].inputs[0]} first"
        )
    file = run.folder / tracing.FOLDER / f"{name}.jsonl"
    with tracing.recording(file, tracing.Origin.of_stage(run.folder, name), name) as span:
        artifact = _run_stage(name, experiment, run, pause)
        manifest = artifact.manifest
        span.attributes |= {"key": manifest.key, "exit_code": manifest.exit_code}
        if manifest.exit_code:
            span.error = manifest.message
        return artifact


def _run_stage(name: str, experiment: Experiment, run: Run, pause: float) -> Artifact:
    started = round(time.time(), 3)
    try:
        run.folder.mkdir(parents=True, exist_ok=True)  # before the work, which would be lost if this failed
        experiment = _described(name, experiment, run)
        with noting():
            artifact, reused = _find_or_make(name, experiment, run, started, pause)
        run.add(artifact, experiment, started, reused)
        if hasattr(module := _module(name), "committed"):
            module.committed(artifact, run)
        return artifact
    except (StageError, OSError) as error:
        refusal = explain(error, run.store.root)
        with suppress(OSError):  # report the full disk, not the failure to record it
            run.fail(name, refusal, experiment, started)
        raise refusal from error
    except SystemExit:
        with suppress(StageError, OSError):
            run.fail(name, Stopped("the stage was stopped: run it again, and it goes on"), experiment, started)
        raise


def _described(stage: str, experiment: Experiment, run: Run) -> Experiment:
    """Return the experiment with what it leaves open about the labels: as validate finds it, or has found it."""
    if experiment.data.is_described or stage not in {"validate", *descendants("validate")}:
        return experiment
    if stage == "validate":
        from tasks.sources.describe import describe

        return describe(experiment)
    found = run.artifact("validate").manifest.part["data"]
    changes = {f"data.{field}": found[field] for field in ("task", "labels", "score_range")}
    return changed(experiment, changes, "the experiment")


def _find_or_make(name: str, experiment: Experiment, run: Run, started: float, pause: float) -> tuple[Artifact, bool]:
    """Return the artifact, and whether it was found."""
    stage = STAGES[name]
    inputs = {needed: run.artifact(needed, experiment) for needed in stage.inputs_of(experiment)}
    keys = {needed: artifact.manifest.key for needed, artifact in inputs.items()}
    module = _module(name)
    plan = module.plan(experiment, run) if hasattr(module, "plan") else None
    fingerprint = _text(plan)
    key = artifact_key(stage.version, stage.key_part(experiment), keys, fingerprint)
    for folder in (run.folder, *(artifact.path for artifact in inputs.values()), run.store.path(name, key)):
        with suppress(OSError):  # it is not there yet, or is another user's
            os.utime(folder)  # so that the stage prune leaves it alone while this one is at work
    progress = artifact_key(stage.version, stage.resume_part(experiment), keys, fingerprint)
    artifact = run.store.find(name, key)
    if artifact is not None:
        log.info("%s is done already: %s", name, artifact.path)
        return artifact, True
    manifest = Manifest(name, key, stage.version, stage.part(experiment), keys, fingerprint, revision())
    with at_work(run.folder, AtWork(stage=name, key=key, progress=progress, since=started)) as tell_steps:
        artifact = _make(experiment, run, inputs, manifest, progress, plan, tell_steps, pause)
        run.store.discard_checkpoints(name, progress)
    return artifact, False


def _module(stage: str) -> ModuleType:
    return importlib.import_module(f"{_PACKAGES[stage]}.stage")


def _text(plan: Any) -> str:
    if plan is None or isinstance(plan, str):
        return plan or ""
    if hasattr(plan, "fingerprint"):
        return str(plan.fingerprint())
    return json.dumps(plan, sort_keys=True, default=asdict)


def _make(
    experiment: Experiment,
    run: Run,
    inputs: dict[str, Artifact],
    manifest: Manifest,
    progress: str,
    plan: Any,
    tell_steps: Callable[[int], None],
    pause: float,
) -> Artifact:
    module, started = _module(manifest.stage), time.monotonic()
    checkpoints = run.store.checkpoints(manifest.stage, progress)
    for name in inputs.keys() - set(_ROWS):
        run.store.find(name, inputs[name].manifest.key, hashed=True)
    with run.store.writing(manifest.stage, manifest.key) as folder:
        try:
            context = Context(experiment, run, inputs, folder, checkpoints, manifest, tell_steps, pause)
            outcome: Outcome = module.run(context) if plan is None else module.run(context, plan)
        except BadInput as error:
            check_unchanged()  # a file that is still being copied is malformed as well
            if any(checkpoints.glob("step-*")):
                again = f"the next try goes on from the checkpoints in {checkpoints}"
                raise BadInput(f"{error}; {again}: remove that folder to start anew") from error
            raise
        check_unchanged()
        result: dict[str, Any] = {
            **outcome.result,
            "stage": manifest.stage,
            "artifact": str(run.store.path(manifest.stage, manifest.key)),
            "seconds": round(time.monotonic() - started, 1),
        }
        ending = replace(manifest, result=result, exit_code=int(outcome.exit_code), message=outcome.message)
        with tracing.span("commit"):
            return run.store.commit(folder, ending)
