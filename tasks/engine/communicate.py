"""What ranks say to each other: gradients, counts and the logits of the dev split."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import horovod.torch as hvd
import torch
from torch import nn

BUCKET_BYTES = 16 * 2**20  # of fp32 gradient: large enough for the link, small enough to leave during backward
WIRE_NORM = 256.0  # fp16 ends at 65504: room for a gradient 256 times the last one


class GradientExchange:
    """Sums the gradient over the ranks, in buckets that leave while backward still runs.

    With fp16 on the wire the gradient is sent free of the loss scale and at a power of two that brings its norm to
    about WIRE_NORM, judged by the step before: the cast neither overflows nor loses the small elements. Should one
    overflow after all, every rank receives the infinity and skips the step.
    """

    def __init__(self, model: nn.Module, compression: Literal["none", "fp16"], scaler: torch.amp.GradScaler) -> None:
        self._scaler = scaler
        self._adaptive = compression == "fp16"
        self.wire_scale = 1.0
        dtype = torch.float16 if self._adaptive else torch.float32
        self._buckets = _buckets(model, dtype) if hvd.size() > 1 else []
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(self._send)  # type: ignore[no-untyped-call]
        self._bucket_of = {parameter: bucket for bucket in self._buckets for parameter in bucket.parameters}

    def synchronize(self) -> None:
        """Wait for the sum of the gradients of all ranks."""
        for bucket in self._buckets:
            bucket.receive(1 / self._factor)

    def adapt(self, norm: float) -> None:
        """Choose the next step's wire scale from this one's norm (which is equal on all ranks)."""
        if not self._adaptive or norm == 0:
            return
        if math.isfinite(norm):
            self.wire_scale = 2.0 ** math.floor(math.log2(WIRE_NORM / norm))
        else:
            self.wire_scale /= WIRE_NORM

    @property
    def _factor(self) -> float:
        return self.wire_scale / self._scaler.get_scale() if self._adaptive else 1.0

    def _send(self, parameter: torch.Tensor) -> None:
        self._bucket_of[parameter].add(parameter, self._factor)


class Bucket:
    """Some parameters whose gradients travel in one piece."""

    def __init__(self, name: str, parameters: list[torch.Tensor], dtype: torch.dtype) -> None:
        self.parameters = parameters
        self._name = name
        sizes = [parameter.numel() for parameter in parameters]
        self._wire = torch.zeros(sum(sizes), dtype=dtype, device=parameters[0].device)
        pieces = torch.split(self._wire, sizes)
        self._places = {p: piece.view_as(p) for p, piece in zip(parameters, pieces, strict=True)}
        self._waiting = set(parameters)
        self._handle: int | None = None

    def add(self, parameter: torch.Tensor, factor: float) -> None:
        """Take a gradient in; the last one sends the bucket off."""
        assert parameter.grad is not None
        torch.mul(parameter.grad, factor, out=self._places[parameter])
        self._waiting.discard(parameter)
        if not self._waiting:
            self._handle = hvd.allreduce_async_(self._wire, name=self._name, op=hvd.Sum)

    def receive(self, factor: float) -> None:
        """Put the sum back into the gradients. A parameter that had none here may have one on another rank."""
        for parameter in tuple(self._waiting):
            parameter.grad = torch.zeros_like(parameter)
            self.add(parameter, factor)
        hvd.synchronize(self._handle)
        for parameter, place in self._places.items():
            assert parameter.grad is not None
            parameter.grad.copy_(place).mul_(factor)  # in this order: the product may be too much for fp16
        self._waiting = set(self.parameters)


def _buckets(model: nn.Module, dtype: torch.dtype) -> list[Bucket]:
    """Parameters from the last to the first, as backward reaches them, in buckets of about BUCKET_BYTES."""
    groups: list[list[torch.Tensor]] = [[]]
    size = 0
    for parameter in reversed([parameter for parameter in model.parameters() if parameter.requires_grad]):
        if groups[-1] and size + parameter.numel() * 4 > BUCKET_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += parameter.numel() * 4
    return [Bucket(f"gradient.{number}", group, dtype) for number, group in enumerate(groups)]


def sum_over_ranks(values: Iterable[float], name: str) -> list[float]:
    """Each value summed over the ranks, in double precision."""
    summed = hvd.allreduce(torch.tensor(list(values), dtype=torch.float64), op=hvd.Sum, name=name)
    return [float(value) for value in summed]


def gather_rows(rows: torch.Tensor, name: str) -> torch.Tensor:
    """The ranks' rows one after the other; a rank may have none."""
    gathered: torch.Tensor = hvd.allgather(rows, name=name)
    return gathered
