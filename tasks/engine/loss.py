"""The loss of each row, for the kind of task."""

from __future__ import annotations

import torch
from torch.nn import functional

from include.glue import Kind


def row_losses(kind: Kind, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits [batch, classes], or squared error of scores [batch, 1]; a loss a row, [batch]."""
    if kind == "classification":
        return functional.cross_entropy(logits, labels, reduction="none")
    return functional.mse_loss(logits.squeeze(-1), labels, reduction="none")
