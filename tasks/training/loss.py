"""The losses of fine-tuning: of each row, and their mean over a batch. A new loss is a row of LOSSES."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

from include.fields.training import Loss
from include.glue import Kind, Task, losses_for
from include.stages import BadInput
from tasks.encoder.batching import Array, send

#: Computes one loss per row, [batch], from logits [batch, labels] or scores [batch, 1], labels and settings. The labels
#: are class ids or scores, [batch], or zeros and ones, [batch, labels].
LossFunction = Callable[[torch.Tensor, torch.Tensor, Loss], torch.Tensor]


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, settings: Loss) -> torch.Tensor:
    """Return -log p, p being the probability of the row's own class, [batch]."""
    return functional.cross_entropy(logits, labels, reduction="none")


def binary_cross_entropy(logits: torch.Tensor, labels: torch.Tensor, settings: Loss) -> torch.Tensor:
    """Return the mean over all labels of -log p, p being the probability that the label applies or not, [batch]."""
    return _of_each_label(logits, labels).mean(dim=1)


def focal(logits: torch.Tensor, labels: torch.Tensor, settings: Loss) -> torch.Tensor:
    """Return -(1 - p)^gamma log p, p being the probability of the row's own class, [batch] (Lin et al. 2017).

    Of a multi-label task it is the mean over all labels, p being the probability that the label applies or not.
    """
    if labels.ndim == 2:
        return _focused(_of_each_label(logits, labels), settings).mean(dim=1)
    return _focused(functional.cross_entropy(logits, labels, reduction="none"), settings)


def _of_each_label(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")


def _focused(losses: torch.Tensor, settings: Loss) -> torch.Tensor:
    wrong = -torch.expm1(-losses)  # 1 - p, exact near 0 too
    # At 0 the slope of a root is infinite, and would make the gradient NaN.
    return wrong.clamp(min=torch.finfo(wrong.dtype).tiny) ** settings.focal_gamma * losses


def mse(scores: torch.Tensor, labels: torch.Tensor, settings: Loss) -> torch.Tensor:
    """Return the squared error, [batch]."""
    return functional.mse_loss(scores.squeeze(-1), labels, reduction="none")


def huber(scores: torch.Tensor, labels: torch.Tensor, settings: Loss) -> torch.Tensor:
    """Return half the squared error up to delta and a linear function beyond (Huber 1964), [batch]."""
    return functional.huber_loss(scores.squeeze(-1), labels, reduction="none", delta=settings.huber_delta)


#: The function of each loss in include/glue.py.
LOSSES: dict[str, LossFunction] = {
    "cross-entropy": cross_entropy,
    "binary-cross-entropy": binary_cross_entropy,
    "focal": focal,
    "mse": mse,
    "huber": huber,
}


def distillation(kind: Kind, logits: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return T^2 KL(teacher || student) of the probabilities at temperature T (Hinton et al. 2015), [batch].

    Both logits are [batch, outputs]. For multi-label, it is the mean over the labels, each of which applies or not; for
    a regression, the squared difference of the scores.
    """
    if kind == "regression":
        return functional.mse_loss(logits, teacher, reduction="none").squeeze(-1)
    ours, theirs = logits / temperature, teacher / temperature
    if kind == "multilabel":
        ours, theirs = (torch.stack([each, torch.zeros_like(each)], -1) for each in (ours, theirs))
    log_ours, log_theirs = functional.log_softmax(ours, -1), functional.log_softmax(theirs, -1)
    divergence = functional.kl_div(log_ours, log_theirs, reduction="none", log_target=True).sum(-1)
    return temperature**2 * (divergence.mean(1) if kind == "multilabel" else divergence)


class Criterion:
    """What fine-tuning minimizes: the rows' losses, weighted by class, over the sum of their weights.

    The mean is that of torch.nn.CrossEntropyLoss(weight) for every kind of loss, and for any number of ranks.
    """

    def __init__(self, loss: Loss, task: Task, labels: Array) -> None:
        name = losses_for(task.kind)[0] if loss.kind == "auto" else loss.kind
        if name not in LOSSES:
            raise BadInput(f"loss.kind {name} has no function: write {', '.join(LOSSES)}, or add it to LOSSES")
        self._function, self._settings = LOSSES[name], loss
        balanced = loss.class_weights == "balanced"
        self._class_weights = balanced_weights(labels, task.label_names) if balanced else None

    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the weighted losses, [batch], of logits [batch, classes] or scores [batch, 1]."""
        losses = self._function(logits, labels, self._settings)
        if self._class_weights is None:
            return losses
        weights = send(torch.from_numpy(self._class_weights).to(logits.dtype), logits.device)
        return losses * weights[labels]

    def weights(self, labels: Array) -> Array:
        """Return the weights of rows with these labels, float64 [rows]."""
        if self._class_weights is None:
            return np.ones(len(labels))
        weights: Array = self._class_weights[labels]
        return weights

    def mean(self, logits: Array, labels: Array) -> float:
        """Return the mean loss of a split in double precision, of logits [rows, outputs]; NaN if it has no rows."""
        if not len(labels):
            return float("nan")
        losses = self.losses(torch.from_numpy(logits).double(), torch.tensor(labels))
        return float(losses.sum() / self.weights(labels).sum())


def balanced_weights(labels: Array, names: tuple[str, ...]) -> Array:
    """Return rows / (classes * rows of the class), float64 [classes]. Raises BadInput if a class has no rows."""
    counts = np.bincount(labels, minlength=len(names))
    if not counts.all():
        raise BadInput(
            f"no training row has the label {names[counts.argmin()]!r}, and can therefore not be balanced: "
            "write loss.class_weights: none"
        )
    weights: Array = len(labels) / (len(names) * counts)
    return weights
