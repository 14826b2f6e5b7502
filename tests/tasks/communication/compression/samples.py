"""Compressors of a small bucket for tests, and steps with them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from include.fields.ranks import Communication
from tasks.communication.compression import compressor
from tasks.communication.compression.base import Compressor
from tasks.communication.link import Link

SHAPES = [torch.Size([40, 30]), torch.Size([2, 3]), torch.Size([25, 60])]
ELEMENTS = sum(shape.numel() for shape in SHAPES)
CPU = torch.device("cpu")
FEEDBACK = ("int8", "int4", "onebit", "topk", "powersgd")
KINDS = ("none", "fp16", *FEEDBACK)


def make(kind: str, shapes: list[torch.Size] = SHAPES, link: Link | None = None) -> Compressor:
    """A compressor as an experiment would name it."""
    settings = Communication.model_validate({"compression": kind, "topk_share": 0.05, "powersgd_rank": 2})
    return compressor(settings, kind, shapes, link or Link(), CPU)


def step(compressor: Compressor, gradient: torch.Tensor) -> torch.Tensor:
    """What a step makes of a gradient: the sum over the ranks."""
    compressor.start(gradient.clone())
    compressor.proceed()
    return compressor.finish().clone()


def gradient(number: int, rank: int = 0) -> torch.Tensor:
    """A gradient whose elements differ in size by some powers of ten."""
    random = torch.Generator().manual_seed(1000 * rank + number)
    values = torch.randn(ELEMENTS, generator=random)
    return values * 10.0 ** torch.randint(-4, 1, (ELEMENTS,), generator=random)


def descend(sum_of: Callable[[torch.Tensor], torch.Tensor], steps: int, rate: float) -> float:
    """Least squares by gradient descent through sum_of, on 40 x 30 weights; the loss left over from about 1."""
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(200, 30, generator=random)
    targets = inputs @ torch.randn(30, 40, generator=random) / 30**0.5
    weights = torch.zeros(40, 30)
    for _ in range(steps):
        errors = inputs @ weights.T - targets
        weights -= rate * sum_of((errors.T @ inputs / len(inputs)).flatten()).view_as(weights)
    return float((inputs @ weights.T - targets).square().mean())
