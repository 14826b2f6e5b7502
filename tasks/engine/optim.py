"""AdamW, its parameter groups, and the learning rate's way up and down."""

from __future__ import annotations

import torch
from torch import nn

from include.experiment import Training


def adamw(model: nn.Module, training: Training) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019) that does not decay biases and norms, which are the vectors of a model."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": training.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=training.learning_rate, fused=True)


def learning_rate(step: int, steps: int, training: Training) -> float:
    """The rate at a step, counted from 1: linearly up to the peak, then linearly down to 0 just after the last."""
    rising = round(training.warmup * steps)
    share = step / rising if step <= rising else (steps - step + 1) / (steps - rising)
    return training.learning_rate * share


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Take the next update at this rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def clip(model: nn.Module, largest: float) -> float:
    """Scale the gradient down to a norm of at most `largest`; the norm that it had."""
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    if norm > largest:
        nn.utils.clip_grads_with_norm_(parameters, largest, norm)
    return float(norm)
