"""The experiment: one immutable pydantic model that holds the whole configuration of a run.

The trigger form of Airflow, the checks of the command line and the keys of artifacts are derived from it. Each named
experiment in include/experiments is a file of differences from the defaults.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, Self

from pydantic import model_validator

from include.glue import AUTO, GENERIC, TASKS, Task
from include.losses import losses_for
from include.own_data import data_problems, is_described
from include.sections import (
    Batching,
    Communication,
    Data,
    Dataset,
    Gate,
    Loss,
    Model,
    Parallel,
    Prediction,
    Preprocessing,
    Pretraining,
    Publication,
    Retention,
    Retraining,
    Runtime,
    Scoring,
    Section,
    Serving,
    Streaming,
    Study,
    Submission,
    Training,
    Validation,
)

_METRICS = {
    "classification": {"accuracy", "f1", "matthews"},
    "multilabel": {"f1_macro", "f1_micro"},
    "regression": {"pearson", "spearman"},
}


#: What each kind of model but the fine-tuned encoder is, and the fields that have no meaning for it.
_LAYERS = (
    *("training.freeze_layers", "training.lora_rank"),
    *("training.compiled_layers", "training.activation_checkpointing"),
    *("parallel.tensor", "parallel.pipeline", "parallel.shard"),
)
_ENGINE = (
    *("batching.padding_free", "loss.kind", "training.average_decay"),
    *("communication.strategy", "communication.compression"),
)
_PRETRAINED = ("model.pooling", "pretraining.text", "retraining.start")
_KINDS = {
    "frozen": ("a regression on the output of an encoder that is not trained", (*_LAYERS, *_ENGINE)),
    "tfidf": ("a regression on TF-IDF", (*_LAYERS, *_ENGINE, *_PRETRAINED)),
    "textcnn": ("a network without encoder layers", (*_LAYERS, *_PRETRAINED, "training.layer_decay")),
}


class Experiment(Section):
    """The whole configuration of a run, and the rules that concern more than one section."""

    data: Data = Data()
    validation: Validation = Validation()
    model: Model = Model()
    preprocessing: Preprocessing = Preprocessing()
    pretraining: Pretraining = Pretraining()
    batching: Batching = Batching()
    loss: Loss = Loss()
    training: Training = Training()
    communication: Communication = Communication()
    parallel: Parallel = Parallel()
    gate: Gate = Gate()
    prediction: Prediction = Prediction()
    submission: Submission = Submission()
    publication: Publication = Publication()
    scoring: Scoring = Scoring()
    serving: Serving = Serving()
    streaming: Streaming = Streaming()
    dataset: Dataset = Dataset()
    retraining: Retraining = Retraining()
    retention: Retention = Retention()
    study: Study = Study()
    runtime: Runtime = Runtime()

    @property
    def task(self) -> Task:
        """The task's row of the registry, completed with the labels and columns of the user's own files."""
        row = TASKS[self.data.task]
        changes: dict[str, Any] = {"separator": self.data.label_separator}
        if self.data.labels:
            changes |= {"labels": self.data.labels, "label_names": self.data.labels}
        if self.data.score_range:
            changes["score_range"] = self.data.score_range
        if self.data.source == "files":
            pair = len(row.sentences) == 2 or "sentence2" in self.data.columns
            sentences = ("sentence", "sentence2") if pair else ("sentence",)
            changes |= {"sentences": sentences, "label": "label", "test_rows": None}
        return dataclasses.replace(row, **changes)

    @property
    def is_described(self) -> bool:
        """Whether it says what a model has to learn. If not, the stage validate finds it out from the user's files."""
        return is_described(self.data)

    @property
    def thresholds(self) -> dict[str, float]:
        """The lowest acceptable value of each metric, by name: the gate's, or else the task's default, if any.

        For the user's own task it is 0, since gate.beat_baseline demands more, unless that is false.
        """
        if self.gate.thresholds:
            return self.gate.thresholds
        if self.task.gate is not None:
            return {self.task.metric: self.task.gate}
        return {self.task.metric: 0.0} if self.task.name in GENERIC and self.gate.beat_baseline else {}

    def uses_horovod(self, ranks: int) -> bool:
        """Return whether a training of so many ranks needs Horovod. One rank does if it is its own parameter server."""
        return ranks > 1 or self.communication.strategy == "parameter-server"

    def part(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return some sections or fields as JSON values.

        Args:
            names: names of sections ("training") or fields ("model.name").

        Returns:
            The value of each, by the given name.
        """
        whole = self.model_dump(mode="json")
        part: dict[str, Any] = {}
        for name in names:
            value = whole
            for key in name.split("."):
                value = value[key]
            part[name] = value
        return part

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        """Raise ValueError with every contradiction, one per line, so that a person need not meet them one by one."""
        rules = (
            data_problems(self.data),
            self._windows_fit(),
            self._whole_batches(),
            self._loss_fits_task(),
            self._pretraining_has_whole_batches(),
            self._spark_needs_a_number_of_ranks(),
            self._average_needs_current_parameters(),
            self._adapters_replace_freezing(),
            self._ranks_fit_the_mesh(),
            self._divided_models_are_plain(),
            self._pipeline_fits(),
            self._fields_fit_kind(),
            self._metrics_fit_task(),
            self._slices_fit_task(),
            self._agreement_needs_a_trial(),
            self._scored_table_is_described(),
        )
        if problems := list(chain.from_iterable(rules)):
            raise ValueError("\n".join(problems))
        return self

    def _windows_fit(self) -> Iterator[str]:
        stride, longest = self.preprocessing.window_stride, self.preprocessing.max_length
        if stride is None:
            return
        if len(self.task.sentences) == 2:
            yield (
                "preprocessing.long windows is for single texts, because it is unclear which text of a pair to divide: "
                "write preprocessing.long: truncate"
            )
        if stride > longest // 2:
            yield (
                f"preprocessing.stride {stride} is more than half of preprocessing.max_length {longest}, so most "
                f"tokens would be in three windows or more: write preprocessing.stride: {longest // 2} or less"
            )

    def _whole_batches(self) -> Iterator[str]:
        size, ranks = self.training.batch_size, self.training.ranks
        parts = self.parallel.shard if ranks == "auto" else max(1, ranks // self.parallel.same_rows)
        if self.batching.kind in ("length", "static") and size % parts:
            what = f"training.ranks {ranks}" if parts == ranks else f"the {parts} ranks that compute different rows"
            yield f"training.batch_size {size} is not a multiple of {what}: write {max(size // parts, 1) * parts}"

    def _loss_fits_task(self) -> Iterator[str]:
        kind, loss = TASKS[self.data.task].kind, self.loss
        if self.data.task == AUTO:
            return
        fitting = ["auto", *losses_for(kind)]
        if loss.kind not in fitting:
            yield (
                f"loss.kind {loss.kind} does not fit the {kind} task {self.data.task}: write one of "
                f"{', '.join(fitting)}"
            )
        if kind == "regression" and loss.class_weights != "none":
            yield f"loss.class_weights needs classes, but {self.data.task} has scores: remove loss.class_weights"
        if kind == "multilabel" and loss.class_weights != "none":
            yield (
                "loss.class_weights weighs rows by their class, but with data.task multi-label a row may have several "
                "labels: remove loss.class_weights; for rare labels, try loss.kind: focal"
            )

    def _pretraining_has_whole_batches(self) -> Iterator[str]:
        rows, ranks = self.pretraining.batch_size, self.training.ranks
        if ranks == "auto" or not self.pretraining.text:
            return
        if self.batching.kind in ("length", "static") and rows % ranks:
            yield (
                f"pretraining.batch_size {rows} is not a multiple of training.ranks {ranks}: "
                f"write {max(rows // ranks, 1) * ranks}"
            )

    def _spark_needs_a_number_of_ranks(self) -> Iterator[str]:
        if self.training.ranks == "auto" and self.runtime.ranks_on == "spark":
            yield (
                "training.ranks auto counts the GPUs of one machine, but runtime.ranks_on is spark: write "
                "training.ranks as a number, at most the number of Spark tasks that the executors run at once"
            )

    def _average_needs_current_parameters(self) -> Iterator[str]:
        if self.training.average_decay and self.communication.staleness:
            yield (
                "training.average_decay needs the current parameters at every step, but with communication.staleness 1 "
                "they are not available: set one of the two fields to 0"
            )

    def _adapters_replace_freezing(self) -> Iterator[str]:
        if self.training.lora_rank and self.training.freeze_layers:
            yield (
                "training.lora_rank freezes the whole encoder and adds adapters to all its layers, so "
                "training.freeze_layers has no meaning: set one of the two fields to 0"
            )

    def _ranks_fit_the_mesh(self) -> Iterator[str]:
        ranks, copy = self.training.ranks, self.parallel.ranks
        if ranks != "auto" and ranks % copy:
            yield (
                f"training.ranks {ranks} is not a multiple of {copy}, the number of ranks that parallel.tensor, "
                f"parallel.pipeline and parallel.shard divide a model among: write {max(ranks // copy, 1) * copy}, or "
                "training.ranks: auto"
            )

    def _divided_models_are_plain(self) -> Iterator[str]:
        """What is written for whole models only."""
        if self.parallel.ranks == 1 or self.model.kind != "encoder":
            return
        only = "works only if every rank has the whole model, not with parallel.tensor, pipeline or shard"
        needed: dict[str, tuple[object, ...]] = {
            "training.sparse_embeddings": (False,),
            "training.fused_layers": (False,),
            "training.compiled_layers": (False,),
            "training.lora_rank": (0,),
            "training.average_decay": (0.0,),
            "batching.padding_free": (False,),
            "communication.strategy": ("all-reduce",),
            "communication.compression": ("none",),
            "pretraining.text": ("",),
            "runtime.lost_rank": ("fail", "restart"),
        }
        for name, fitting in needed.items():
            section, field = name.split(".")
            value = getattr(getattr(self, section), field)
            if value not in fitting:
                yield f"{name} {_written(value)} {only}: write {name}: {_written(fitting[0])}"

    def _pipeline_fits(self) -> Iterator[str]:
        parallel = self.parallel
        if parallel.pipeline == 1:
            return
        if parallel.shard > 1:
            yield "parallel.shard and parallel.pipeline do not work together: set one of the two fields to 1"
        if parallel.micro_batches < parallel.pipeline:
            yield (
                f"parallel.micro_batches {parallel.micro_batches} leave some of the {parallel.pipeline} stages of "
                f"parallel.pipeline idle: write {parallel.pipeline} or more"
            )
        if self.training.accumulation > 1:
            yield "training.accumulation divides a step, which the stages do anyway: write parallel.micro_batches"
        if self.training.freeze_layers:
            yield (
                "training.freeze_layers leaves a stage without gradients: write training.freeze_layers: 0, or "
                "parallel.pipeline: 1"
            )

    def _fields_fit_kind(self) -> Iterator[str]:
        kind = self.model.kind
        what, idle = _KINDS.get(kind, ("", ()))
        for name in idle:
            section, field = name.split(".")
            values: Section = getattr(self, section)
            default = type(values).model_fields[field].default
            if getattr(values, field) != default:
                yield (
                    f"{name} has no meaning with model.kind {kind}, which is {what}: write {name}: {default!r}, or "
                    "model.kind: encoder"
                )
        if kind in ("frozen", "tfidf") and self.training.ranks not in ("auto", 1):
            yield f"model.kind {kind} is trained by Spark and not by ranks: write training.ranks: auto"

    def _agreement_needs_a_trial(self) -> Iterator[str]:
        if self.retraining.min_agreement and not self.retraining.trial_texts:
            yield (
                "retraining.min_agreement is about the answers in a trial, but retraining.trial_texts is 0, so there "
                "is none: write the number of texts to try, or retraining.min_agreement: 0"
            )

    def _metrics_fit_task(self) -> Iterator[str]:
        kind, best_by = TASKS[self.data.task].kind, self.training.best_by
        if self.data.task == AUTO:
            return
        wrong = [f"gate.{metric}" for metric in sorted(set(self.gate.thresholds) - _METRICS[kind])][:1]
        wrong += [f"training.best_by {best_by}"] if best_by not in {"metric", "loss", *_METRICS[kind]} else []
        for name in wrong:
            yield (
                f"{name} does not exist for the {kind} task {self.data.task}: "
                f"write one of {', '.join(sorted(_METRICS[kind]))}"
            )

    def _slices_fit_task(self) -> Iterator[str]:
        unknown = sorted(set(self.gate.slices) - set(self.task.slices))
        if unknown and self.is_described:
            yield (
                f"gate.slices names {unknown[0]!r}, which is not a slice of dev: "
                f"write one of {', '.join(self.task.slices)}"
            )

    def _scored_table_is_described(self) -> Iterator[str]:
        scoring = self.scoring
        for name, value in (("table", scoring.table), ("driver", scoring.driver)):
            if scoring.is_database and not value:
                what = "the table to score" if name == "table" else "the .jar file of the database's JDBC driver"
                yield f"scoring.input is a database, which needs scoring.{name}: write {what}"
            if not scoring.is_database and value:
                yield f"scoring.{name} works only if scoring.input is a database: remove scoring.{name}"
        for name, part in (("scoring", scoring), ("streaming", self.streaming)):
            if part.text == part.text2:
                yield f"{name}.text and {name}.text2 both name {part.text!r}: name two columns, or one in {name}.text"


def _written(value: object) -> str:
    """Return a value as a person would write it into an experiment."""
    return value if isinstance(value, str) and value else json.dumps(value)
