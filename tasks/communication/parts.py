"""What a rank has of each parameter of a model that is divided among ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from tasks.communication.layout import Layout, Place


@dataclass(frozen=True, eq=False)
class Part:
    """A rank's part of a parameter.

    Attributes:
        parameter: the parameter, a DTensor if it is divided.
        values: the part, which shares its memory with the parameter. Its gradient is what `take_gradient` moved there.
        place: where it lies.
        copies: the number of ranks, of those that have parts of one copy of the model, that have the same part.
    """

    parameter: nn.Parameter
    values: torch.Tensor
    place: Place
    copies: int

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
    return {name: part for name, part in _all(model, layout) if part.values.numel()}


def _all(model: nn.Module, layout: Layout) -> Iterator[tuple[str, Part]]:
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
        copies = 1
        for size, _ in axes.values():
            copies *= size
        written = layout.place.data == 0 and all(number == 0 for _, number in axes.values())
        yield name, Part(parameter, values, Place(tuple(offset), tuple(shape), tuple(parameter.shape), written), copies)
