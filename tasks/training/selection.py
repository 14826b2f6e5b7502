"""Selection by evaluations during training: the best model is kept, and training may stop early."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from tasks.encoder.models import EncoderWithHead

LOSS = "dev_loss"  # in metrics.jsonl "loss" is the loss of training
BATCH_TOKENS = 2048  # small enough for every rank to get rows of a dev split of a few hundred rows


class BestModel:
    """The best model so far, which lies on disk, its metrics and step, and the number of evaluations since."""

    def __init__(self, folder: Path, patience: int) -> None:
        self.folder = folder
        self._patience = patience
        self.selection = self.metric = math.nan
        self.step = 0
        self.evaluations_since = 0

    def improves(self, selection: float, metric: float, step: int) -> bool:
        """Record an evaluation; return whether its selection metric is the largest so far. NaN is the smallest."""
        was_undefined = math.isnan(self.selection) and not math.isnan(selection)
        if self.step == 0 or selection > self.selection or was_undefined:
            self.selection, self.metric, self.step, self.evaluations_since = selection, metric, step, 0
            return True
        self.evaluations_since += 1
        return False

    @property
    def defined(self) -> bool:
        """Whether the best model's metric is a number."""
        return math.isfinite(self.metric)

    @property
    def out_of_patience(self) -> bool:
        """Whether `patience` evaluations have passed without an improvement; with a patience of 0, never."""
        return 0 < self._patience <= self.evaluations_since

    def save(self, model: EncoderWithHead) -> None:
        """Write the model. The model before it is removed only when this one is complete."""
        fresh = self.folder.with_name(f".{self.folder.name}-fresh")
        shutil.rmtree(fresh, ignore_errors=True)  # a killed process may have left it
        model.save(fresh)
        if self.folder.exists():
            shutil.rmtree(self.folder)
        fresh.rename(self.folder)

    def state_dict(self) -> dict[str, float | None]:
        """Return the best values, with None for NaN. The checkpoint also holds the folder of the model."""
        numbers = {"selection": self.selection, "metric": self.metric}
        known = {name: None if math.isnan(value) else value for name, value in numbers.items()}
        return {**known, "step": self.step, "evaluations_since": self.evaluations_since}

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        """Replace the best values."""
        known = {name: math.nan if value is None else value for name, value in state.items()}
        self.selection, self.metric = known["selection"], known["metric"]
        self.step, self.evaluations_since = int(known["step"]), int(known["evaluations_since"])
