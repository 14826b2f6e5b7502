"""The losses of fine-tuning: of each row, and a batch's mean of them."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from include.glue import Task
from include.sections import Loss
from include.stages import BadInput
from tasks.encoder.batching import Array


class Criterion:
    """What fine-tuning makes small: the sum of the rows' losses over the sum of the rows' weights.

    A weight is its class's, or 1, and its row's loss holds it already. So the mean is that of
    torch.nn.CrossEntropyLoss(weight), for every kind of loss and however many ranks share the rows.
    """

    def __init__(self, loss: Loss, task: Task, labels: Array) -> None:
        """For a task with these training labels, [rows]. Raises BadInput when a class to be balanced has no rows."""
        usual = {"classification": "cross-entropy", "regression": "mse"}
        self._loss = loss
        self._kind = usual[task.kind] if loss.kind == "auto" else loss.kind
        balanced = loss.class_weights == "balanced"
        self._class_weights = balanced_weights(labels, task.label_names) if balanced else None

    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Of logits [batch, classes] or scores [batch, 1]: a loss a row, times the row's weight, [batch]."""
        match self._kind:
            case "mse":
                return functional.mse_loss(logits.squeeze(-1), labels, reduction="none")
            case "huber":  # quadratic up to delta, in units of the score (Huber 1964)
                delta = self._loss.huber_delta
                return functional.huber_loss(logits.squeeze(-1), labels, reduction="none", delta=delta)
            case "focal":
                losses = focal_losses(logits, labels, self._loss.focal_gamma)
            case _:
                losses = functional.cross_entropy(logits, labels, reduction="none")
        if self._class_weights is None:
            return losses
        weights = torch.from_numpy(self._class_weights).to(logits.device, logits.dtype, non_blocking=True)
        return losses * weights[labels]

    def weights(self, labels: Array) -> Array:
        """The weight of rows with these labels, float64 [rows]."""
        if self._class_weights is None:
            return np.ones(len(labels))
        weights: Array = self._class_weights[labels]
        return weights

    def mean(self, logits: Array, labels: Array) -> float:
        """The loss of a whole split, in double precision, of logits [rows, outputs]; NaN for one without rows."""
        if not len(labels):
            return float("nan")
        losses = self.losses(torch.from_numpy(logits).double(), torch.tensor(labels))
        return float(losses.sum() / self.weights(labels).sum())


def focal_losses(logits: torch.Tensor, labels: torch.Tensor, gamma: float) -> torch.Tensor:
    """-(1 - p)^gamma log p, p being the probability of the row's own class, [batch] (Lin et al. 2017, formula 4).

    Their alpha is the row's weight. With gamma 0 it is cross-entropy.
    """
    losses = functional.cross_entropy(logits, labels, reduction="none")
    wrong = -torch.expm1(-losses)  # 1 - p, exact near 0 too
    # At 0 itself the slope of a root is infinite, and would make the gradient NaN.
    return wrong.clamp(min=torch.finfo(wrong.dtype).tiny) ** gamma * losses


def balanced_weights(labels: Array, names: tuple[str, ...]) -> Array:
    """Rows / (classes x the class's rows) by class id, float64 [classes]: every class has the same say in a split.

    Raises BadInput when a class has no rows.
    """
    counts = np.bincount(labels, minlength=len(names))
    if not counts.all():
        raise BadInput(
            f"no training row has the label {names[counts.argmin()]!r}, so that it cannot be balanced: "
            "write loss.class_weights: none"
        )
    weights: Array = len(labels) / (len(names) * counts)
    return weights
