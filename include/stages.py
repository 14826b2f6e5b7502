"""What the scheduler and a stage agree on: names, order, exit codes, errors and the result line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from include.experiment import Experiment


class ExitCode(IntEnum):
    """How a stage process ends; the operators turn these into Airflow's retry policy."""

    DONE = 0
    BAD_INPUT = 2  # bad data or configuration: retrying cannot help
    GATE_FAILED = 3  # the model is not good enough: retrying cannot help
    TRANSIENT = 75  # EX_TEMPFAIL of sysexits.h: a lost rank, a full disk; retry
    STOPPED = 143  # 128 + SIGTERM: stopped from outside, may be run again


class StageError(Exception):
    """An error that a person can act on. Its message names the file, row or key and the remedy."""

    exit_code = ExitCode.TRANSIENT


class BadInput(StageError):
    """The data or the experiment is wrong, and stays wrong however often it is tried."""

    exit_code = ExitCode.BAD_INPUT


class Transient(StageError):
    """Something outside the run's control failed; the same command may succeed later."""


class Stopped(StageError):
    """Stopped from outside; the same command goes on from where it was."""

    exit_code = ExitCode.STOPPED


@dataclass(frozen=True)
class Stage:
    """What one process does: a step of the pipeline, or work beside its runs.

    Attributes:
        name: also the name of its package under tasks/ and of its folder in the artifact store.
        does: one line for help texts and the Airflow UI.
        version: raised when the same inputs would give another output; part of the artifact's key.
        reads: the sections ("training") or fields ("model.name") of the experiment that change its output.
        inputs: the stages whose artifacts it reads.
        switch: the field without which it makes nothing, whatever the others say; "": there is none.
        image: the container image that holds what it needs; only train's has Horovod.
        spark: whether it works on Spark, and so may need to reach a cluster.
        mlflow: whether it speaks with MLflow: a server, or else the database below the home, which it writes.
        promotes: whether it moves the champion's alias there, with the login of whoever may.
    """

    name: str
    does: str
    version: int
    reads: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    switch: str = ""
    image: Literal["data", "train"] = "data"
    spark: bool = False
    mlflow: bool = False
    promotes: bool = False

    def part(self, experiment: Experiment) -> dict[str, Any]:
        """What changes its output, of an experiment, as JSON values."""
        idle = self.switch and not experiment.part((self.switch,))[self.switch]
        return experiment.part((self.switch,) if idle else self.reads)


#: The fields of the section training that pre-training follows too; for the others it has its own, or none.
SHARED_WITH_PRETRAINING = ("accumulation", "clip_norm", "precision", "activation_checkpointing", "ranks")
_PIPELINE = (
    Stage("validate", "check the raw data with Great Expectations", 2, ("data", "validation"), spark=True),
    Stage(
        "preprocess",
        "clean, sample and tokenise on Spark",
        1,
        ("preprocessing", "model.name"),
        ("validate",),
        spark=True,
    ),
    Stage(
        "pretrain",
        "let the encoder learn from unlabelled text, if any",
        3,
        (
            *("pretraining", "model.name", "preprocessing.max_length", "batching", "communication"),
            *(f"training.{name}" for name in SHARED_WITH_PRETRAINING),
        ),
        switch="pretraining.text",
        image="train",
    ),
    Stage(
        "train",
        "fine-tune the encoder on Horovod",
        4,
        ("model", "batching", "loss", "training", "communication"),
        ("preprocess", "pretrain"),
        image="train",
    ),
    Stage("evaluate", "score the dev split and write the report", 2, ("gate",), ("validate", "preprocess", "train")),
    Stage("gate", "hold the metrics against the thresholds", 2, ("gate",), ("validate", "preprocess", "evaluate")),
    Stage(
        "predict", "label the test split on Spark", 2, ("prediction",), ("validate", "preprocess", "train"), spark=True
    ),
    Stage("export", "write and check the submission zip", 1, ("submission",), ("validate", "predict")),
)
#: What a model's name in the registry is made of.
_REGISTERED = ("data.task", "dataset.name")
_BESIDE = (
    Stage("study", "put the arms of an ablation together in one report", 1, ("study",)),
    Stage("track", "write the run to MLflow, and earlier ones that it missed", 1, (), mlflow=True),
    Stage("ingest", "add the rows of new files to a dataset", 2, ("data", "validation.max_quarantine", "dataset")),
    Stage("champion", "find the champion in the registry and check its files", 1, _REGISTERED, mlflow=True),
    Stage(
        "challenge",
        "hold the model against the champion",
        1,
        tuple(f"retraining.{name}" for name in ("margin", "slice_margin", "max_latency", "max_size")),
        ("preprocess", "train", "evaluate", "gate", "champion"),
    ),
    Stage(
        "register",
        "enter the model into the registry",
        1,
        _REGISTERED,
        ("train", "evaluate", "gate", "challenge"),
        mlflow=True,
    ),
    Stage(
        "promote",
        "make the model the champion",
        1,
        (*_REGISTERED, "retraining.approval"),
        ("challenge", "register"),
        mlflow=True,
        promotes=True,
    ),
    Stage(
        "rollback", "make the champion before this one the champion again", 1, _REGISTERED, mlflow=True, promotes=True
    ),
    Stage("prune", "list or remove what nothing refers to any more", 1, ("retention",), mlflow=True),
)
#: All stages by name, each after those that it reads.
STAGES: dict[str, Stage] = {stage.name: stage for stage in (*_PIPELINE, *_BESIDE)}
#: The names of those that a run of finetune goes through, in order.
PIPELINE: tuple[str, ...] = tuple(stage.name for stage in _PIPELINE)


def result_line(result: dict[str, Any]) -> str:
    """The one line of JSON that a stage prints last on stdout (Airflow's XCom, whatever the runtime)."""
    return json.dumps(result, allow_nan=False, ensure_ascii=False, sort_keys=True)


def parse_result(line: str) -> dict[str, Any]:
    """Read a result line back. Raises StageError when it is not a JSON object."""
    try:
        result = json.loads(line)
    except json.JSONDecodeError as error:
        raise StageError(f"the stage's last line on stdout is not JSON: {line[:200]!r}") from error
    if not isinstance(result, dict):
        raise StageError(f"the stage's last line on stdout is not a JSON object: {line[:200]!r}")
    return result
