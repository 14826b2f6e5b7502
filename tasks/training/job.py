"""What a training is, in JSON: the experiment and the folders. All that a rank is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from include.artifacts import write_json
from include.experiment import Experiment
from include.sections import Batching, Training
from tasks.encoder.spec import HeadSpec


def checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints in a training's folder, whole or damaged, by step and from the oldest to the newest."""
    return dict(sorted((int(path.name.removeprefix("step-")), path) for path in folder.glob("step-*")))


@dataclass(frozen=True)
class Job:
    """A training.

    Attributes:
        experiment: what to do.
        encoder: folder of the pretrained encoder.
        data: token ids, in train/ and dev/: preprocess's artifact, or pretrain's blocks.
        output: where rank 0 writes model/, metrics.jsonl and training.json.
        objective: what is learned: a task's labels, or the words that are hidden in text.
        checkpoints: a folder that outlives a stop: what a training needs to go on from there; None: output.
        terminal: whether a person watches: a progress bar instead of a line every few seconds.
    """

    experiment: Experiment
    encoder: Path
    data: Path
    output: Path
    objective: Literal["labels", "masked words"] = "labels"
    terminal: bool = False
    checkpoints: Path | None = None

    @property
    def folder(self) -> Path:
        """Where everything is written while the training runs."""
        return self.checkpoints or self.output

    @property
    def training(self) -> Training:
        """How to train."""
        return self.experiment.training

    @property
    def ranks(self) -> int:
        """How many ranks were asked for, once launch has settled what auto is."""
        assert self.training.ranks != "auto"
        return self.training.ranks

    @property
    def batching(self) -> Batching:
        """Which rows share a step."""
        return self.experiment.batching

    @property
    def head(self) -> HeadSpec:
        """The head that the experiment's task needs."""
        task, model = self.experiment.task, self.experiment.model
        return HeadSpec(
            kind=task.kind,
            outputs=task.outputs,
            pooling=model.pooling,
            dropout=model.dropout,
            max_length=self.experiment.preprocessing.max_length,
            label_names=task.label_names,
            score_range=task.score_range,
        )

    def write(self, file: Path) -> None:
        """Write it as JSON."""
        folders = {name: str(getattr(self, name)) for name in ("encoder", "data", "output")}
        folders["checkpoints"] = str(self.folder)
        told = {"objective": self.objective, "terminal": self.terminal, **folders}
        write_json(file, {"experiment": self.experiment.model_dump(mode="json"), **told})

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what write wrote."""
        values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return cls(
            experiment=Experiment.model_validate(values["experiment"]),
            encoder=Path(values["encoder"]),
            data=Path(values["data"]),
            output=Path(values["output"]),
            objective=values["objective"],
            terminal=values["terminal"],
            checkpoints=Path(values["checkpoints"]),
        )
