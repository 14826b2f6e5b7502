"""The description of a training that every rank receives: the experiment and the folders, as JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from pydantic import TypeAdapter

from include.artifacts import write_json
from include.experiment import Experiment
from include.fields.training import Batching, Training
from tasks.encoder.spec import HeadSpec

#: The file with the metrics of a training, a line of JSON for each time that they were taken.
METRICS = "metrics.jsonl"
#: The file of each kind of profile (runtime.profile).
PROFILES = {"torch": "torch.json.gz", "horovod": "horovod.json"}
#: The folders of the data that a training reads.
SPLITS = ("train", "dev")


def checkpoints(folder: Path) -> dict[int, Path]:
    """Return the checkpoints in a training's folder, complete or damaged, by step from the oldest to the newest."""
    return dict(sorted((int(path.name.removeprefix("step-")), path) for path in folder.glob("step-*")))


@dataclass(frozen=True)
class Job:
    """A training."""

    experiment: Experiment
    encoder: Path  # the folder of the pretrained encoder
    data: Path  # token ids, with train/ and dev/: the artifact of preprocess, or the blocks of pretrain
    output: Path  # the folder into which rank 0 writes model/, metrics.jsonl and training.json
    objective: Literal["labels", "masked words"] = "labels"  # what is learned
    teacher: Path | None = None  # the artifact of teach, if there is a teacher
    terminal: bool = False  # whether to show a progress bar instead of a line every few seconds
    checkpoints: Path | None = None  # a folder for checkpoints that outlives a stop; None: the output
    address: str = ""  # in a store, where ranks without a folder in common put checkpoints; "": they have `folder`
    spent: float = 0  # seconds of training before the engine begins, which are those of a TextCNN's word vectors
    layout: str = ""  # why it has this number of ranks, if there was a choice
    pause: float = 1  # the share of the steps after which it pauses, with a checkpoint and dev scored
    timed_steps: int = 0  # that are taken and timed in place of the training, to choose the number of ranks

    @property
    def folder(self) -> Path:
        """The folder that the training writes into while it runs."""
        return self.checkpoints or self.output

    @property
    def training(self) -> Training:
        """The experiment's section training."""
        return self.experiment.training

    @property
    def ranks(self) -> int:
        """The number of ranks that was asked for. The launcher has replaced `auto` by a number."""
        assert self.training.ranks != "auto"
        return self.training.ranks

    @property
    def uses_horovod(self) -> bool:
        """Whether the training needs Horovod."""
        return self.experiment.uses_horovod(self.ranks)

    @property
    def batching(self) -> Batching:
        """The experiment's section batching."""
        return self.experiment.batching

    @property
    def head(self) -> HeadSpec:
        """The head that the task needs."""
        task, model = self.experiment.task, self.experiment.model
        return HeadSpec(
            kind=task.kind,
            outputs=task.outputs,
            pooling=model.pooling,
            dropout=model.dropout,
            max_length=self.experiment.preprocessing.max_length,
            stride=self.experiment.preprocessing.window_stride,
            label_names=task.label_names,
            score_range=task.score_range,
            cleaning=self.experiment.preprocessing.clean,
            texts=len(task.sentences),
        )

    def write(self, file: Path) -> None:
        """Write the job as JSON."""
        write_json(file, TypeAdapter(Job).dump_python(replace(self, checkpoints=self.folder), mode="json"))

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a job that `write` wrote."""
        return TypeAdapter(cls).validate_json(file.read_bytes())
