"""The dev split during training: scored by all ranks together, the best model kept, and when to stop."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import torch

from include.glue import Task
from tasks.communication.link import gather_rows
from tasks.encoder.batching import Array, TokenTable, length_batches
from tasks.encoder.inference import batch_logits
from tasks.encoder.models import Classifier, EncoderWithHead
from tasks.scoring.metrics import all_metrics
from tasks.training.loss import Criterion

LOSS = "dev_loss"  # beside the task's metrics; "loss" is training's
BATCH_TOKENS = 2048  # small enough that every rank gets some of a dev split of a few hundred rows


def score(
    model: Classifier, table: TokenTable, task: Task, criterion: Criterion, rank: int, world: int
) -> dict[str, float]:
    """The task's metrics and the loss on the whole split, exactly and equally on every rank, in fp32."""
    batches = length_batches(table.lengths, batch_tokens=BATCH_TOKENS)[rank::world]
    own = np.concatenate([np.zeros(0, np.int64), *batches])
    outputs = [batch_logits(model, table, indices) for indices in batches]
    own_logits = np.concatenate([np.zeros((0, model.spec.outputs), np.float32), *outputs])
    indices = gather_rows(torch.from_numpy(own), "dev.indices").numpy()
    gathered = gather_rows(torch.from_numpy(own_logits), "dev.logits").numpy()
    logits: Array = np.empty_like(gathered)
    logits[indices] = gathered
    return {**all_metrics(task, table.labels, logits), LOSS: criterion.mean(logits, table.labels)}


class Best:
    """The best model so far, on disk, and how long ago that was."""

    def __init__(self, folder: Path, patience: int) -> None:
        self.folder = folder
        self._patience = patience
        self.goodness = self.metric = math.nan
        self.step = 0
        self.evaluations_since = 0

    def better(self, goodness: float, metric: float, step: int) -> bool:
        """Take note of an evaluation; whether it is the best one: of the largest goodness. The first always is.

        An undefined goodness is worse than any other. The metric is noted for reports.
        """
        if self.step == 0 or goodness > self.goodness or (math.isnan(self.goodness) and not math.isnan(goodness)):
            self.goodness, self.metric, self.step, self.evaluations_since = goodness, metric, step, 0
            return True
        self.evaluations_since += 1
        return False

    @property
    def defined(self) -> bool:
        """Whether the best metric is a number."""
        return math.isfinite(self.metric)

    @property
    def out_of_patience(self) -> bool:
        """Whether training should stop."""
        return 0 < self._patience <= self.evaluations_since

    def keep(self, model: EncoderWithHead) -> None:
        """Write the model; the one kept before goes only when this one is whole."""
        fresh = self.folder.with_name(f".{self.folder.name}-fresh")
        shutil.rmtree(fresh, ignore_errors=True)  # what a kill has left
        model.save(fresh)
        if self.folder.exists():
            shutil.rmtree(self.folder)
        fresh.rename(self.folder)

    def state(self) -> dict[str, float | None]:
        """For a checkpoint, which holds the model as well; None stands for what is not a number."""
        numbers = {"goodness": self.goodness, "metric": self.metric}
        known = {name: None if math.isnan(value) else value for name, value in numbers.items()}
        return {**known, "step": self.step, "evaluations_since": self.evaluations_since}

    def load(self, state: dict[str, float | None]) -> None:
        """Take over what state gave."""
        goodness, metric, step, since = (
            math.nan if value is None else value
            for value in (state["goodness"], state["metric"], state["step"], state["evaluations_since"])
        )
        self.goodness, self.metric, self.step, self.evaluations_since = goodness, metric, int(step), int(since)
