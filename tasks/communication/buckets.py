"""Buckets of gradients: the backward pass fills a flat buffer, which is sent when its last gradient is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

BUCKET_BYTES = 16 * 2**20  # of fp32 gradients: large enough for the link, small enough to overlap with backward


class GradientBuffer:
    """One flat fp32 tensor that holds the gradients of some parameters, in their order."""

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        send: Callable[[torch.Tensor], None],
        multiple: int = 1,
        flat: torch.Tensor | None = None,
    ) -> None:
        """Call `send` with the full buffer: `flat`, or one of a length that zeros make a multiple of `multiple`."""
        self.parameters = tuple(parameters)
        self._send = send
        self._sizes = [parameter.numel() for parameter in parameters]
        padded = -(-sum(self._sizes) // multiple) * multiple
        self._flat = torch.zeros(padded, device=self.parameters[0].device) if flat is None else flat
        self._places = self.views(self._flat)
        self._waiting = set(parameters)

    def add(self, parameter: torch.Tensor, factor: float) -> None:
        """Move a parameter's gradient, fp32 or bf16, times a factor, into the buffer; send a full buffer."""
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            self._places[parameter].zero_()
        elif factor == 1:
            self._places[parameter].copy_(gradient)
        else:
            torch.mul(gradient.float(), factor, out=self._places[parameter])
        self._waiting.discard(parameter)
        if not self._waiting:
            self._send(self._flat)

    def complete(self, factor: float) -> None:
        """Add the gradients that this rank's backward pass did not reach, and prepare for the next step."""
        for parameter in tuple(self._waiting):
            self.add(parameter, factor)
        self._waiting = set(self.parameters)

    def views(self, flat: torch.Tensor) -> dict[torch.Tensor, torch.Tensor]:
        """Return views of a tensor as long as the buffer: by parameter, its part of the tensor in its shape."""
        pieces = torch.split(flat[: sum(self._sizes)], self._sizes)
        return {p: piece.view_as(p) for p, piece in zip(self.parameters, pieces, strict=True)}


def group_by_size(parameters: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Group parameters, from the last to the first as the backward pass reaches them, by about BUCKET_BYTES."""
    groups: list[list[torch.Tensor]] = []
    size = BUCKET_BYTES
    for parameter in reversed(list(parameters)):
        if size + parameter.numel() * 4 > BUCKET_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += parameter.numel() * 4
    return groups
