"""What the scheduler and a stage agree on: names, order, exit codes, errors and the result line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage: what it does, what it reads and writes, and what its container needs.

    Attributes:
        name: the name of its package below tasks/stages, and of its folder in the artifact store.
        does: one line for help texts and the Airflow UI.
        version: raised when the same inputs would give another output; part of the artifact's key.
        reads: the sections ("training") or fields ("model.name") of the experiment that change its output.
        inputs: the stages whose artifacts it reads.
        switch: the field without which it makes nothing, whatever the others say; "": there is none.
        may_change: the fields in `reads` that may change between a stopped try and the one that continues it.
        records: the other runs whose records it reads: none, those that submission.runs names, or all.
        writes: the folders of the home that it writes besides its artifact and its run's record.
        sees: the folders of the home that it reads besides artifacts.
        cache: whether it reads downloaded models and corpora, and may download missing ones.
        image: the container image that holds what it needs; only `train` has Horovod.
        spark: whether it works on Spark, and so may need to reach a cluster.
        mlflow: whether it uses MLflow: a server, or else the database below the home, which it writes.
        uploads: whether it writes to the Hugging Face hub.
        promotes: whether it moves the champion's alias there, for which a login of its own may be needed.
        limits: the limits of its container, as $SPARK_BERT_LIMITS writes them.
    """

    name: str
    does: str
    version: int
    reads: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    switch: str = ""
    may_change: tuple[str, ...] = ()
    records: Literal["none", "named", "all"] = "none"
    writes: tuple[Literal["datasets", "runs", "streams"], ...] = ()
    sees: tuple[Literal["datasets"], ...] = ()
    cache: bool = False
    image: Literal["data", "train"] = "data"
    spark: bool = False
    mlflow: bool = False
    uploads: bool = False
    promotes: bool = False
    limits: Mapping[str, str | int] = field(default_factory=lambda: _SMALL)

    def part(self, experiment: Experiment) -> dict[str, Any]:
        """Return the part of an experiment that changes the stage's output, as JSON values."""
        return experiment.part(self._names(experiment))

    def key_part(self, experiment: Experiment) -> dict[str, Any]:
        """Return the fields of the part that differ from their defaults, by name ("section.field").

        An artifact's key is made of them, so a new field with a default does not change the keys of artifacts.
        """
        return non_defaults(experiment, self._names(experiment))

    def resume_part(self, experiment: Experiment) -> dict[str, Any]:
        """Return what of key_part a stopped try and the one that continues it must have in common."""
        return {name: value for name, value in self.key_part(experiment).items() if name not in self.may_change}

    def differences(self, made: dict[str, Any], experiment: Experiment) -> dict[str, tuple[Any, Any]]:
        """Compare the part that an artifact was made from with that of an experiment.

        Args:
            made: the part in the artifact's manifest. A field that it lacks had its default value.
            experiment: the experiment.

        Returns:
            The old and the new value of each field that differs, by its name ("section.field").
        """
        before, now = flatten(self._default(experiment)) | flatten(made), flatten(self.part(experiment))
        return {name: (before.get(name), value) for name, value in now.items() if before.get(name) != value}

    def is_idle(self, experiment: Experiment) -> bool:
        """Return whether the stage makes nothing, because its switch is not set."""
        return bool(self.switch) and not experiment.part((self.switch,))[self.switch]

    def _names(self, experiment: Experiment) -> tuple[str, ...]:
        return (self.switch,) if self.is_idle(experiment) else self.reads

    def _default(self, experiment: Experiment) -> dict[str, Any]:
        return type(experiment)().part(self._names(experiment))


def non_defaults(experiment: Experiment, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields that differ from their defaults, by name ("section.field").

    Args:
        experiment: the experiment.
        names: the sections ("training") or fields ("model.name") to look at.
    """
    default, fields = (flatten(each.part(names)) for each in (type(experiment)(), experiment))
    return {name: value for name, value in fields.items() if name not in default or default[name] != value}


def flatten(part: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a part by their names ("section.field")."""
    flat: dict[str, Any] = {}
    for key, value in part.items():
        flat |= {f"{key}.{field}": one for field, one in value.items()} if isinstance(value, dict) else {key: value}
    return flat


_SMALL: dict[str, str | int] = {"memory": "1g", "cpus": 1, "tmp": "512m"}
_TRAINING: dict[str, str | int] = {"memory": "12g", "cpus": 16, "pids": 2048, "shm": "3g"}
#: How the ranks divide the model. No result depends on it, up to rounding.
_PARALLEL = tuple(f"parallel.{field}" for field in ("tensor", "pipeline", "shard", "micro_batches"))
#: The fields of the section training that pre-training follows too; for the others it has its own, or none.
SHARED_WITH_PRETRAINING = (
    "accumulation",
    "clip_norm",
    "precision",
    "compiled_layers",
    "activation_checkpointing",
    "ranks",
)
#: The fields that the name of a model in the registry is made of.
_REGISTERED = ("data.task", "dataset.name")
#: The largest drift of new rows that is accepted.
_DRIFT = ("dataset.max_label_drift", "dataset.max_length_drift", "dataset.max_vocabulary_drift")

_PIPELINE = (
    Stage(
        name="validate",
        does="check the raw data with Great Expectations",
        version=5,
        reads=("data", "validation"),
        cache=True,
        spark=True,
        limits={"memory": "4g", "cpus": 4},
    ),
    Stage(
        name="preprocess",
        does="clean, sample and tokenize on Spark",
        version=4,
        reads=("preprocessing", "model.name"),
        inputs=("validate",),
        cache=True,
        spark=True,
        limits={"memory": "6g", "cpus": 8, "pids": 1024},
    ),
    Stage(
        name="pretrain",
        does="let the encoder learn from unlabeled text, if there is any",
        version=5,
        reads=(
            *("pretraining", "model.name", "preprocessing.max_length", "batching", "communication"),
            *(f"training.{name}" for name in SHARED_WITH_PRETRAINING),
        ),
        switch="pretraining.text",
        may_change=("training.ranks",),
        cache=True,
        image="train",
        limits=_TRAINING,
    ),
    Stage(
        name="train",
        does="fine-tune the encoder, on Horovod if there are several ranks",
        version=8,
        reads=("model", "batching", "loss", "training", "communication", "parallel"),
        inputs=("preprocess", "pretrain"),
        may_change=("training.ranks", *_PARALLEL),
        cache=True,
        image="train",
        limits=_TRAINING,
    ),
    Stage(
        name="evaluate",
        does="score the dev split and write the report",
        version=5,
        reads=("gate", "prediction.escape_formulas"),
        inputs=("validate", "preprocess", "train"),
        limits={"memory": "6g", "cpus": 8},
    ),
    Stage(
        name="gate",
        does="compare the metrics with the thresholds",
        version=2,
        reads=("gate",),
        inputs=("validate", "preprocess", "evaluate"),
    ),
    Stage(
        name="package",
        does="write the model in faster forms, check and time them",
        version=7,
        inputs=("preprocess", "train", "gate"),
        limits={"memory": "8g", "cpus": 8},  # it holds the model in every form
    ),
    Stage(
        name="predict",
        does="label the test split on Spark",
        version=5,
        reads=("prediction",),
        inputs=("validate", "preprocess", "package"),
        spark=True,
        limits={"memory": "8g", "cpus": 8, "pids": 1024},
    ),
    Stage(
        name="export",
        does="write and check the submission zip",
        version=1,
        reads=("submission",),
        inputs=("validate", "predict"),
        records="named",
        limits={"memory": "2g", "cpus": 1, "tmp": "512m"},
    ),
)
_LIFECYCLE = (
    Stage(
        name="ingest",
        does="add the rows of new files to a dataset",
        version=3,
        reads=("data", "validation.max_quarantine", "dataset"),
        writes=("datasets",),
        cache=True,
        limits={"memory": "4g", "cpus": 2, "tmp": "512m"},
    ),
    Stage(
        name="champion",
        does="find the champion in the registry and check its files",
        version=3,
        reads=_REGISTERED,
        mlflow=True,
    ),
    Stage(
        name="challenge",
        does="compare the model with the champion",
        version=3,
        reads=tuple(f"retraining.{name}" for name in ("margin", "slice_margin", "max_latency", "max_size")),
        inputs=("validate", "preprocess", "train", "evaluate", "gate", "package", "champion"),
        limits={"memory": "6g", "cpus": 8},  # it holds two models
    ),
    Stage(
        name="register",
        does="enter the model into the registry",
        version=3,
        reads=_REGISTERED,
        inputs=("train", "evaluate", "gate", "package", "challenge"),
        mlflow=True,
    ),
    Stage(
        name="promote",
        does="make the model the champion",
        version=2,
        reads=(*_REGISTERED, *(f"retraining.{name}" for name in ("approval", "trial_texts", "min_agreement"))),
        inputs=("challenge", "register"),
        mlflow=True,
        promotes=True,
    ),
    Stage(
        name="rollback",
        does="make the champion before this one the champion again",
        version=1,
        reads=_REGISTERED,
        mlflow=True,
        promotes=True,
    ),
)
_LABELING = (
    Stage(
        name="score",
        does="label the rows of a table on Spark",
        version=3,
        reads=("scoring", "prediction", "data.label_separator", *_REGISTERED),
        spark=True,
        mlflow=True,
        limits={"memory": "8g", "cpus": 8, "pids": 1024},
    ),
    Stage(
        name="stream",
        does="label rows as they arrive, on Spark",
        version=1,
        reads=("streaming", "prediction", *_DRIFT, *_REGISTERED),
        may_change=("streaming.continuous", "streaming.interval"),
        writes=("streams",),
        spark=True,
        mlflow=True,
        limits={"memory": "8g", "cpus": 8, "pids": 1024},
    ),
)
_STUDIES = (
    Stage(
        name="study",
        does="compare the arms of an ablation in one report",
        version=2,
        reads=("study",),
        records="all",
        limits={"memory": "2g", "cpus": 2, "tmp": "512m"},
    ),
    Stage(
        name="leaderboard",
        does="compare the models of all finished runs in one table per task",
        version=2,
        records="all",
        limits={"memory": "2g", "cpus": 2, "tmp": "512m"},
    ),
)
_UPKEEP = (
    Stage(
        name="track",
        does="write the run to MLflow, and earlier ones that it missed",
        version=1,
        records="all",
        mlflow=True,
    ),
    Stage(
        name="publish",
        does="upload the model with its model card to the Hugging Face hub",
        version=2,
        reads=("publication", "data", "model", "preprocessing"),
        inputs=("validate", "preprocess", "train", "evaluate", "gate"),
        cache=True,
        uploads=True,
    ),
    Stage(
        name="prune",
        does="list or remove what nothing refers to any more",
        version=1,
        reads=("retention",),
        writes=("runs",),
        sees=("datasets",),
        mlflow=True,
    ),
)
#: The packages of tasks/stages, each with its stages. A stage comes after those that it reads.
GROUPS: dict[str, tuple[Stage, ...]] = {
    "pipeline": _PIPELINE,
    "lifecycle": _LIFECYCLE,
    "labeling": _LABELING,
    "studies": _STUDIES,
    "upkeep": _UPKEEP,
}
#: All stages by name.
STAGES: dict[str, Stage] = {stage.name: stage for group in GROUPS.values() for stage in group}
#: The names of the stages of a run of finetune, in order.
PIPELINE: tuple[str, ...] = tuple(stage.name for stage in _PIPELINE)


def result_line(result: dict[str, Any]) -> str:
    """The one line of JSON that a stage prints last on stdout (Airflow's XCom, whatever the runtime).

    It is ASCII, since logs are split at all of Unicode's line ends, such as U+2028 in a label.
    """
    return json.dumps(result, allow_nan=False, sort_keys=True)


def parse_result(line: str) -> dict[str, Any]:
    """Read a result line back. Raises StageError when it is not a JSON object."""
    try:
        result = json.loads(line)
    except json.JSONDecodeError as error:
        raise StageError(f"the stage's last line on stdout is not JSON: {line[:200]!r}") from error
    if not isinstance(result, dict):
        raise StageError(f"the stage's last line on stdout is not a JSON object: {line[:200]!r}")
    return result
