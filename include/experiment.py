"""The experiment: one immutable pydantic model that holds the whole configuration of a run.

The trigger form of Airflow, the checks of the command line and the keys of artifacts are derived from it. Each named
experiment in include/experiments is a file of differences from the defaults.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from pydantic import model_validator

from include.fields.base import Section
from include.fields.data import OWN, Data, Preprocessing, Validation
from include.fields.labeling import Scoring, Serving, Streaming
from include.fields.ranks import Communication, Parallel, Runtime
from include.fields.results import Gate, Packaging, Prediction, Publication, Study, Submission
from include.fields.retraining import Dataset, Retention, Retraining
from include.fields.search import Search
from include.fields.training import Batching, Distillation, Loss, Model, Pretraining, Training
from include.glue import GENERIC, TASKS, Task
from include.rules import problems


class Experiment(Section):
    """The whole configuration of a run, and the rules that concern more than one section."""

    data: Data = Data()
    validation: Validation = Validation()
    model: Model = Model()
    preprocessing: Preprocessing = Preprocessing()
    pretraining: Pretraining = Pretraining()
    batching: Batching = Batching()
    loss: Loss = Loss()
    distillation: Distillation = Distillation()
    training: Training = Training()
    communication: Communication = Communication()
    parallel: Parallel = Parallel()
    gate: Gate = Gate()
    packaging: Packaging = Packaging()
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
    search: Search = Search()
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
        if self.data.source in OWN:
            pair = len(row.sentences) == 2 or "sentence2" in self.data.columns
            sentences = ("sentence", "sentence2") if pair else ("sentence",)
            changes |= {"sentences": sentences, "label": "label", "test_rows": None}
        return dataclasses.replace(row, **changes)

    @property
    def thresholds(self) -> dict[str, float]:
        """The lowest acceptable value of each metric: the gate's, or else the task's default, if any."""
        if self.gate.thresholds:
            return self.gate.thresholds
        if self.task.gate is not None:
            return {self.task.metric: self.task.gate}
        return {self.task.metric: 0.0} if self.task.name in GENERIC and self.gate.beat_baseline else {}

    def uses_horovod(self, ranks: int) -> bool:
        """Return whether a training on this number of ranks needs Horovod, as a single parameter server also does."""
        return ranks > 1 or self.communication.strategy == "parameter-server"

    def part(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the values of sections ("training") or fields ("model.name") as JSON values, by the given names."""
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
        """Raise ValueError with every contradiction, one per line, so that they need not be found one by one."""
        if found := list(problems(self)):
            raise ValueError("\n".join(found))
        return self
