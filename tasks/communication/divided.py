"""The exchange of a model that is divided among ranks: Horovod sums the gradients of equal parts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from tasks.communication.all_reduce import Bucket
from tasks.communication.exchange import Exchange, by_kind, group_by_size, total_norm
from tasks.communication.layout import Layout, Place
from tasks.communication.link import Link
from tasks.communication.ranks import sum_over_ranks
from tasks.encoder.models import EncoderWithHead


@dataclass(frozen=True, eq=False)
class Part:
    """A rank's part of a parameter."""

    parameter: nn.Parameter  # a DTensor if it is divided
    values: torch.Tensor  # the part, in the parameter's memory; its gradient is what `take_gradient` moved there
    place: Place
    copies: int  # of the ranks that have parts of one copy of the model, the number that has this part

    def take_gradient(self) -> None:
        """Move the parameter's gradient to the part, which then is a plain tensor with a plain gradient."""
        gradient, self.parameter.grad = self.parameter.grad, None
        if isinstance(gradient, DTensor):
            placements = cast(DTensor, self.parameter).placements
            if gradient.placements != placements:
                gradient = gradient.redistribute(placements=placements)
            gradient = gradient.to_local().contiguous()  # as the fused AdamW reads it
        self.values.grad = gradient


def parts_of(model: nn.Module, layout: Layout) -> dict[str, Part]:
    """Return this rank's parts of a model's parameters by name, without those of which it has nothing."""
    parts = {}
    for name, parameter in model.named_parameters():
        axes = {"shard": (layout.mesh.shard, layout.place.shard), "tensor": (layout.mesh.tensor, layout.place.tensor)}
        values, shape, offset = parameter.detach(), tuple(parameter.shape), (0,) * parameter.ndim
        if isinstance(parameter, DTensor):
            mesh, placements = parameter.device_mesh, parameter.placements
            values = parameter.to_local().detach()
            shape, offset = compute_local_shape_and_global_offset(parameter.shape, mesh, placements)
            for axis, placement in zip(mesh.mesh_dim_names or (), placements, strict=True):
                if not placement.is_replicate():
                    del axes[axis]
        copies = math.prod(size for size, _ in axes.values())
        written = layout.place.data == 0 and all(number == 0 for _, number in axes.values())
        if values.numel():
            place = Place(tuple(offset), tuple(shape), tuple(parameter.shape), written)
            parts[name] = Part(parameter, values, place, copies)
    return parts


class DividedModel(Exchange):
    """Sums the gradients of this rank's parts over the ranks with the same parts, after the last backward pass."""

    # The backward passes of a pipeline fire a parameter's hooks once per micro-batch, so nothing is sent earlier.

    def __init__(self, model: EncoderWithHead, parts: Mapping[str, Part], layout: Layout) -> None:
        super().__init__(model)
        self._layout = layout
        self._parts = {name: part for name, part in parts.items() if part.parameter.requires_grad}
        self.parameters = {name: part.values for name, part in self._parts.items()}
        self._buckets: list[Bucket] = []
        sent = by_kind(model) if layout.mesh.data > 1 else {}  # a single copy's parts have no others to be summed with
        self._links = {kind: Link(layout.replicas) for kind in sent}
        for kind, named in sent.items():
            groups = group_by_size([self.parameters[name] for name in named if name in self.parameters])
            self._buckets += [Bucket(f"divided.{kind}.{n}", g, self._links[kind]) for n, g in enumerate(groups)]

    def synchronize_gradients(self) -> bool:
        """Sum the gradients, and exchange the norm and the requests to stop with all ranks."""
        for part in self._parts.values():
            part.take_gradient()
            if not self._buckets and part.values.grad is not None and self.loss_scale != 1:
                part.values.grad /= self.loss_scale
        for bucket in self._buckets:
            bucket.gradients.complete(1 / self.loss_scale)
        for bucket in self._buckets:
            bucket.receive()
        squares, stop_requests = sum_over_ranks([self._square(), float(self.stop)], "norm")
        self._norm = math.sqrt(squares / self._layout.mesh.data)
        return stop_requests > 0

    def _square(self) -> float:
        """Return this rank's share of the squared norm, to which all that have copies of a part contribute alike."""
        groups: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)
        for name, part in self._parts.items():
            groups[part.copies][name] = part.values
        return sum(float(total_norm(group)) ** 2 / copies for copies, group in groups.items())
