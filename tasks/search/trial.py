"""A trial: an ordinary run of the stages up to the gate, whose training pauses at the rungs."""

from __future__ import annotations

import logging
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from include.artifacts import Artifact, in_turn
from include.experiment import Experiment
from include.named_experiments import changed
from include.runs import AT_WORK, AtWork, Run
from include.stages import PIPELINE, ExitCode, StageError, Stopped
from tasks.launching.launch import Paused
from tasks.runner import run_stage
from tasks.training.job import checkpoints

log = logging.getLogger(__name__)

#: The stages of a trial. The data are those of the search's own run.
STAGES_OF_TRIAL = PIPELINE[1 : PIPELINE.index("gate") + 1]
#: The file in the search's own run that is locked by the process that makes what trials may have in common.
IN_COMMON = "in-common.lock"
_BEFORE_TRAIN = PIPELINE[1 : PIPELINE.index("train")]


@dataclass(frozen=True)
class Reached:
    """Where a trial is when it frees its process. Metrics are those of dev."""

    step: int
    metrics: dict[str, float | None]
    done: bool  # whether the whole run is, up to the gate
    passed: bool | None = None  # the gate
    checkpoints: str = ""  # the key of the checkpoints of a paused training


def with_values(experiment: Experiment, values: dict[str, Any]) -> Experiment:
    """Return the experiment of a trial. Raise BadInput if its values contradict one another."""
    return changed(experiment, values, "the trial's experiment")


def advance(run: Run, data: Run, search: str, experiment: Experiment, share: float = 1) -> Reached:
    """Run the stages that are left, on the data of another run, until the training has taken a share of its steps.

    A training that is done already is not asked for less.
    """
    if _validated(run) != _validated(data):  # also if the run is that of a search of this name that was removed
        run.adopt(data, "preprocess", {}, search)
    artifacts: dict[str, Artifact] = {}
    try:
        for stage in STAGES_OF_TRIAL:
            # The search's other processes may make the same, and not two can pre-train or teach at once.
            with in_turn(data.folder / IN_COMMON) if stage in _BEFORE_TRAIN else nullcontext():
                artifacts[stage] = run_stage(stage, experiment, run, share)
    except Paused as pause:
        for old in list(checkpoints(pause.folder).values())[:-1]:
            shutil.rmtree(old)
        return Reached(pause.step, pause.metrics, done=False, checkpoints=pause.folder.name)
    track(run, experiment)
    trained, evaluated = artifacts["train"].manifest.result, artifacts["evaluate"].manifest.result
    passed = artifacts["gate"].manifest.exit_code == ExitCode.DONE
    return Reached(trained["steps"], evaluated["metrics"], True, passed)


def newest_step(run: Run) -> int:
    """Return the step of the newest checkpoint of a run whose training was killed, 0 if there is none."""
    file = run.folder / AT_WORK / "train.json"
    if not file.is_file():
        return 0
    work = AtWork.model_validate_json(file.read_bytes())
    return max(checkpoints(run.store.checkpoints("train", work.progress)), default=0)


def _validated(run: Run) -> str:
    return str(run.record()["stages"].get("validate", {}).get("key", ""))


def track(run: Run, experiment: Experiment) -> None:
    """Write a run to MLflow. If that fails, a later run's tracking does it: it decides nothing."""
    try:
        run_stage("track", experiment, run)
    except Stopped:
        raise
    except StageError as error:
        log.warning("%s is not tracked: %s", run.folder.name, error)
