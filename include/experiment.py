"""The experiment: one immutable pydantic model that holds the whole configuration of a run.

The trigger form of Airflow, the checks of the command line and the keys of artifacts are derived from it. Each named
experiment in include/experiments is a file of differences from the defaults.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from pydantic import model_validator

from include import sections
from include.glue import GENERIC, TASKS, Task
from include.rules import problems


class Experiment(sections.Section):
    """The whole configuration of a run, and the rules that concern more than one section."""

    data: sections.Data = sections.Data()
    validation: sections.Validation = sections.Validation()
    model: sections.Model = sections.Model()
    preprocessing: sections.Preprocessing = sections.Preprocessing()
    pretraining: sections.Pretraining = sections.Pretraining()
    batching: sections.Batching = sections.Batching()
    loss: sections.Loss = sections.Loss()
    training: sections.Training = sections.Training()
    communication: sections.Communication = sections.Communication()
    parallel: sections.Parallel = sections.Parallel()
    gate: sections.Gate = sections.Gate()
    prediction: sections.Prediction = sections.Prediction()
    submission: sections.Submission = sections.Submission()
    publication: sections.Publication = sections.Publication()
    scoring: sections.Scoring = sections.Scoring()
    serving: sections.Serving = sections.Serving()
    streaming: sections.Streaming = sections.Streaming()
    dataset: sections.Dataset = sections.Dataset()
    retraining: sections.Retraining = sections.Retraining()
    retention: sections.Retention = sections.Retention()
    study: sections.Study = sections.Study()
    runtime: sections.Runtime = sections.Runtime()

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
    def thresholds(self) -> dict[str, float]:
        """The lowest acceptable value of each metric, by name: the gate's, or else the task's default, if any.

        For the user's own task it is 0, because gate.beat_baseline demands more, unless that is false.
        """
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
