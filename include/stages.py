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
    """Stopped from outside; the same command continues from there."""

    exit_code = ExitCode.STOPPED


_Limits = Mapping[str, str | int]
_SMALL: _Limits = {"memory": "1g", "cpus": 1, "tmp": "512m"}


@dataclass(frozen=True)
class Stage:
    """One stage: what it does, what it reads and writes, and what its container needs."""

    name: str  # of its package below tasks/stages, and of its folder in the artifact store
    version: int  # raised when the same inputs would give another output; part of the artifact's key
    does: str  # for help texts and the Airflow UI
    reads: tuple[str, ...] = ()  # the sections ("training") or fields ("model.name") that change its output
    inputs: tuple[str, ...] = ()  # the stages whose artifacts it reads
    optional: tuple[str, ...] = ()  # the stages whose artifacts it reads unless they are idle
    switch: str = ""  # the field without which it makes nothing
    may_change: tuple[str, ...] = ()  # the fields in `reads` that may differ in the try that continues a stopped one
    records: Literal["none", "named", "all"] = "none"  # of other runs that it reads; the experiment names "named" ones
    writes: tuple[
        Literal["datasets", "runs", "searches", "streams"], ...
    ] = ()  # of the home, besides artifact and record
    sees: tuple[Literal["datasets"], ...] = ()  # the folders of the home that it reads in addition to artifacts
    cache: bool = False  # whether it reads downloaded models and corpora, and may download missing ones
    image: Literal["data", "train", "search"] = "data"  # only `train` and `search`, which has both, have Horovod
    spark: bool = False  # whether it works on Spark, and so may need to reach a cluster
    mlflow: bool = False  # whether it uses MLflow: a server, or else the database below the home, which it writes
    uploads: bool = False  # whether it writes to the Hugging Face hub
    promotes: bool = False  # whether it moves the champion's alias, for which a login of its own may be needed
    limits: _Limits = field(default_factory=lambda: _SMALL)  # as $SPARK_BERT_LIMITS writes them

    def part(self, experiment: Experiment) -> dict[str, Any]:
        """Return the part of an experiment that changes the stage's output, as JSON values."""
        return experiment.part(self._names(experiment))

    def key_part(self, experiment: Experiment) -> dict[str, Any]:
        """Return the fields of the part that differ from their defaults, of which an artifact's key is made."""
        return non_defaults(experiment, self._names(experiment))

    def resume_part(self, experiment: Experiment) -> dict[str, Any]:
        """Return what of key_part a stopped try and the one that continues it must have in common."""
        return {name: value for name, value in self.key_part(experiment).items() if name not in self.may_change}

    def differences(self, made: dict[str, Any], experiment: Experiment) -> dict[str, tuple[Any, Any]]:
        """Return the old and the new value of each field in which an experiment differs from an artifact's part."""
        # A field that the part lacks had its default value.
        default = type(experiment)().part(self._names(experiment))
        before, now = flatten(default) | flatten(made), flatten(self.part(experiment))
        return {name: (before.get(name), value) for name, value in now.items() if before.get(name) != value}

    def inputs_of(self, experiment: Experiment) -> tuple[str, ...]:
        """Return the stages whose artifacts it reads in a run of an experiment."""
        return (*self.inputs, *(name for name in self.optional if not STAGES[name].is_idle(experiment)))

    def is_idle(self, experiment: Experiment) -> bool:
        """Return whether the stage makes nothing, because its switch is not set."""
        return bool(self.switch) and not experiment.part((self.switch,))[self.switch]

    def _names(self, experiment: Experiment) -> tuple[str, ...]:
        return (self.switch,) if self.is_idle(experiment) else self.reads


def non_defaults(experiment: Experiment, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of some sections or fields that differ from their defaults, by name ("section.field")."""
    default, fields = (flatten(each.part(names)) for each in (type(experiment)(), experiment))
    return {name: value for name, value in fields.items() if name not in default or default[name] != value}


def flatten(part: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a part by their names ("section.field")."""
    flat: dict[str, Any] = {}
    for key, value in part.items():
        flat |= {f"{key}.{field}": one for field, one in value.items()} if isinstance(value, dict) else {key: value}
    return flat


_TRAINING: _Limits = {"memory": "12g", "cpus": 16, "pids": 2048, "shm": "3g"}
_LABELING_ON_SPARK: _Limits = {"memory": "8g", "cpus": 8, "pids": 1024}
_REPORT: _Limits = {"memory": "2g", "cpus": 2, "tmp": "512m"}
#: How the ranks divide the model. No result depends on it, up to rounding.
_PARALLEL = tuple(f"parallel.{field}" for field in ("tensor", "pipeline", "shard", "micro_batches"))
#: The fields of the section training that pre-training follows too; for the others it has its own, or none.
SHARED_WITH_PRETRAINING = (
    "accumulation", "clip_norm", "precision", "compiled_layers", "activation_checkpointing", "ranks",
)  # fmt: skip
#: The fields that the name of a model in the registry is made of.
_REGISTERED = ("data.task", "dataset.name")

_PIPELINE = (
    Stage(
        "validate", 6, "check the raw data with Great Expectations", ("data", "validation"),
        cache=True, spark=True, limits={"memory": "4g", "cpus": 4},
    ),
    Stage(
        "preprocess", 5, "clean, sample and tokenize the rows", ("preprocessing", "model.name"), ("validate",),
        cache=True, spark=True, limits={"memory": "6g", "cpus": 8, "pids": 1024},
    ),
    Stage(
        "pretrain", 5, "let the encoder learn from unlabeled text, if there is any",
        (
            *("pretraining", "model.name", "preprocessing.max_length", "batching", "communication"),
            *(f"training.{name}" for name in SHARED_WITH_PRETRAINING),
        ),
        switch="pretraining.text", may_change=("training.ranks",), cache=True, image="train", limits=_TRAINING,
    ),
    Stage(
        "teach", 1, "compute the logits of the teacher, if there is one",
        ("model.name", "model.teacher", "distillation.text", "distillation.max_rows"), ("preprocess",),
        switch="model.teacher", records="named", cache=True, spark=True, mlflow=True, limits=_LABELING_ON_SPARK,
    ),
    Stage(
        "train", 9, "fine-tune the encoder, on Horovod if there are several ranks",
        ("model", "batching", "loss", "distillation", "training", "communication", "parallel"),
        ("preprocess", "pretrain"), ("teach",),
        may_change=("training.ranks", *_PARALLEL), cache=True, image="train", limits=_TRAINING,
    ),
    Stage(
        "evaluate", 8, "score the dev split and write the report",
        ("gate", "prediction.escape_formulas", "model.teacher"), ("validate", "preprocess", "train"), ("teach",),
        limits={"memory": "6g", "cpus": 8},
    ),
    Stage(
        "gate", 3, "compare the metrics with the thresholds", ("gate",), ("validate", "preprocess", "evaluate"),
    ),
    Stage(
        "package", 11, "write the model in faster forms, check and time them", ("packaging",),
        ("preprocess", "train", "gate"),
        limits={"memory": "8g", "cpus": 8},  # it holds the model in every form
    ),
    Stage(
        "predict", 6, "label the test split", ("prediction",), ("validate", "preprocess", "package"),
        spark=True, limits=_LABELING_ON_SPARK,
    ),
    Stage(
        "export", 1, "write and check the submission zip", ("submission",), ("validate", "predict"),
        records="named", limits={"memory": "2g", "cpus": 1, "tmp": "512m"},
    ),
)  # fmt: skip
_LIFECYCLE = (
    Stage(
        "ingest", 3, "add the rows of new files to a dataset", ("data", "validation.max_quarantine", "dataset"),
        writes=("datasets",), cache=True, limits={"memory": "4g", "cpus": 2, "tmp": "512m"},
    ),
    Stage("champion", 3, "find the champion in the registry and check its files", _REGISTERED, mlflow=True),
    Stage(
        "challenge", 4, "compare the model with the champion",
        tuple(f"retraining.{name}" for name in ("margin", "slice_margin", "max_latency", "max_size")),
        ("validate", "preprocess", "train", "evaluate", "gate", "package", "champion"),
        limits={"memory": "6g", "cpus": 8},  # it holds two models
    ),
    Stage(
        "register", 3, "enter the model into the registry", _REGISTERED,
        ("train", "evaluate", "gate", "package", "challenge"), mlflow=True,
    ),
    Stage(
        "promote", 3, "make the model the champion",
        (*_REGISTERED, *(f"retraining.{name}" for name in ("approval", "trial_texts", "min_agreement"))),
        ("challenge", "register"), mlflow=True, promotes=True,
    ),
    Stage(
        "rollback", 2, "make the champion before this one the champion again", _REGISTERED, mlflow=True, promotes=True,
    ),
)  # fmt: skip
_LABELING = (
    Stage(
        "score", 5, "label the rows of a table",
        ("scoring", "prediction", "data.label_separator", *_REGISTERED),
        spark=True, mlflow=True, limits=_LABELING_ON_SPARK,
    ),
    Stage(
        "stream", 1, "label rows as they arrive, on Spark",
        (
            *("streaming", "prediction", *_REGISTERED),
            *("dataset.max_label_drift", "dataset.max_length_drift", "dataset.max_vocabulary_drift"),
        ),
        may_change=("streaming.continuous", "streaming.interval"), writes=("streams",),
        spark=True, mlflow=True, limits=_LABELING_ON_SPARK,
    ),
)  # fmt: skip
#: The stages between the data and the metrics: what a search varies is what they read.
TRIED = tuple(stage.name for stage in _PIPELINE[1 : [stage.name for stage in _PIPELINE].index("evaluate")])
_OF_TRIALS = tuple(
    dict.fromkeys(name for stage in _PIPELINE if stage.name in (*TRIED, "evaluate", "gate") for name in stage.reads)
)
_STUDIES = (
    Stage("study", 4, "compare the arms of an ablation in one report", ("study",), records="all", limits=_REPORT),
    Stage(
        "leaderboard", 2, "compare the models of all finished runs in one table per task",
        records="all", limits=_REPORT,
    ),
    Stage(
        "search", 1, "look for good settings: each trial is a run, and successive halving trains the best ones on",
        ("search", *_OF_TRIALS), ("validate",),
        may_change=("search.name", "search.minutes", "search.trials", "search.seeds"),
        writes=("runs", "searches"), cache=True, image="search", spark=True, mlflow=True, limits=_TRAINING,
    ),
    Stage(
        "recommend", 1, "train winner and default of a search with other seeds, and recommend the better settings",
        ("search", *_OF_TRIALS), ("validate", "search"), writes=("runs",), cache=True, image="search", spark=True,
        mlflow=True, limits=_TRAINING,
    ),
)  # fmt: skip
_UPKEEP = (
    Stage("track", 1, "write the run to MLflow, and earlier ones that it missed", records="all", mlflow=True),
    Stage(
        "publish", 2, "upload the model with its model card to the Hugging Face hub",
        ("publication", "data", "model", "preprocessing", "distillation"),
        ("validate", "preprocess", "train", "evaluate", "gate"),
        cache=True, uploads=True,
    ),
    Stage(
        "prune", 1, "list or remove what nothing refers to any more", ("retention",),
        writes=("runs",), sees=("datasets",), mlflow=True,
    ),
)  # fmt: skip
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
    """Return the line of JSON that a stage prints last on stdout, which is its XCom in Airflow.

    It is ASCII, since logs are split at all of Unicode's line ends, such as U+2028 in a label.
    """
    return json.dumps(result, allow_nan=False, sort_keys=True)


def parse_result(line: str) -> dict[str, Any]:
    """Read a result line. Raise StageError if it is not a JSON object."""
    try:
        result = json.loads(line)
    except json.JSONDecodeError as error:
        raise StageError(f"the stage's last line on stdout is not JSON: {line[:200]!r}") from error
    if not isinstance(result, dict):
        raise StageError(f"the stage's last line on stdout is not a JSON object: {line[:200]!r}")
    return result
