"""The dev split during training: scored by all ranks together, the best model kept, and when to stop."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import torch

from include.glue import Task
from tasks.encoder.batching import Array, TokenTable, length_batches
from tasks.encoder.inference import batch_logits
from tasks.encoder.models import Classifier
from tasks.engine.communicate import gather_rows
from tasks.metrics import all_metrics

BATCH_TOKENS = 2048  # small enough that every rank gets some of a dev split of a few hundred rows


def score(model: Classifier, table: TokenTable, task: Task, rank: int, world: int) -> dict[str, float]:
    """The task's metrics on the whole split, exactly and equally on every rank, in fp32."""
    batches = length_batches(table.lengths, batch_tokens=BATCH_TOKENS)[rank::world]
    own = np.concatenate([np.zeros(0, np.int64), *batches])
    outputs = [batch_logits(model, table, indices) for indices in batches]
    own_logits = np.concatenate([np.zeros((0, model.spec.outputs), np.float32), *outputs])
    indices = gather_rows(torch.from_numpy(own), "dev.indices").numpy()
    gathered = gather_rows(torch.from_numpy(own_logits), "dev.logits").numpy()
    logits: Array = np.empty_like(gathered)
    logits[indices] = gathered
    return all_metrics(task, table.labels, logits)


class Best:
    """The best model so far, on disk, and how long ago that was."""

    def __init__(self, folder: Path, patience: int) -> None:
        self._folder = folder
        self._patience = patience
        self.metric = math.nan
        self.step = 0
        self.evaluations_since = 0

    def better(self, metric: float, step: int) -> bool:
        """Take note of an evaluation; whether it is the best one. The first is, even when it is undefined."""
        if self.step == 0 or metric > self.metric or (math.isnan(self.metric) and not math.isnan(metric)):
            self.metric, self.step, self.evaluations_since = metric, step, 0
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

    def keep(self, model: Classifier) -> None:
        """Write the model; the one kept before goes only when this one is whole."""
        fresh = self._folder.with_name(f".{self._folder.name}-{self.step}")
        model.save(fresh)
        if self._folder.exists():
            shutil.rmtree(self._folder)
        fresh.rename(self._folder)
