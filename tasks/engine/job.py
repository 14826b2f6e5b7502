"""What a training is, in JSON: the experiment and the folders. All that a rank is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from include.artifacts import write_json
from include.experiment import Experiment
from tasks.encoder.spec import HeadSpec


@dataclass(frozen=True)
class Job:
    """A training.

    Attributes:
        experiment: what to do.
        encoder: folder of the pretrained encoder.
        data: preprocess's artifact, which holds train/ and dev/.
        output: where rank 0 writes model/, metrics.jsonl and training.json.
        terminal: whether a person watches: a progress bar instead of a line every few seconds.
    """

    experiment: Experiment
    encoder: Path
    data: Path
    output: Path
    terminal: bool = False

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
        write_json(file, {"experiment": self.experiment.model_dump(mode="json"), "terminal": self.terminal, **folders})

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what write wrote."""
        values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return cls(
            experiment=Experiment.model_validate(values["experiment"]),
            encoder=Path(values["encoder"]),
            data=Path(values["data"]),
            output=Path(values["output"]),
            terminal=values["terminal"],
        )
