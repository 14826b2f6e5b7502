"""The trainers of a model that is divided among ranks."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from include.stages import Transient
from tasks.communication.ranks import sum_over_ranks
from tasks.encoder.models import EncoderWithHead
from tasks.training.loop import Trainer
from tasks.training.parallel.pipeline import Pipeline
from tasks.training.pieces import load_pieces, save_pieces
from tasks.training.sampler import RankBatch
from tasks.training.training_state import Weights


@dataclass(frozen=True)
class DividedTrainer(Trainer):
    """One rank's part of the training of a model of which it has a part.

    Attributes:
        weights: this rank's part of the model.
        skeleton: the whole model without values.
    """

    weights: Weights = field(kw_only=True)
    skeleton: EncoderWithHead = field(kw_only=True)

    def save_best(self) -> None:
        """Keep the model, which is the best so far. Its parts meet in files, so that no rank but the first has all."""
        folder = self.job.folder / ".best-parts"
        if self.layout.leads:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        self._wait_for_all()
        parts, place_of = self.state.written(self.weights)
        try:
            save_pieces(parts, place_of, folder / f"{self.layout.rank}.safetensors")
        except OSError as error:
            raise Transient(f"cannot write the model to {folder}: {error}") from error
        self._wait_for_all()
        if self.layout.leads:
            whole = load_pieces(sorted(folder.glob("*.safetensors")), None, torch.device("cpu"))
            self.skeleton.load_state_dict(whole, strict=False, assign=True)
            self.best.save(self.skeleton)
            self.skeleton.to("meta")
            shutil.rmtree(folder)

    def elements(self) -> int:
        """Return how many trained numbers this rank has."""
        return sum(part.numel() for part in self.exchange.parameters.values())

    def _wait_for_all(self) -> None:
        sum_over_ranks([0], "parts")


@dataclass(frozen=True)
class PipelineTrainer(DividedTrainer):
    """One rank's part of the training of a model whose layers are divided among stages.

    Attributes:
        pipeline: this rank's stage.
    """

    pipeline: Pipeline = field(kw_only=True)

    def compute_gradients(self, batch: RankBatch) -> None:
        """Run the forward and backward passes of a batch, whose micro-batches all stages compute at the same time."""
        with self.phases.data:
            inputs = self.inputs(batch)
        with self.phases.backward:
            loss = self.pipeline.step(inputs.to(self.device), batch.weight, self.loss_scale.value)
        rows, length = self.pipeline.shape(inputs)
        self.meter.count(inputs, loss, rows * length)


def without_values(model: EncoderWithHead) -> EncoderWithHead:
    """Return a copy of a model that takes no memory."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = buffer.to("meta")
    return copy.deepcopy(model, memo)
