"""Gradients that leave together: backward fills a flat buffer, and the last gradient sends it off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

BUCKET_BYTES = 16 * 2**20  # of fp32 gradient: large enough for the link, small enough to leave during backward


class GradientBuffer:
    """One flat fp32 tensor for the gradients of some parameters, in their order.

    Attributes:
        parameters: whose gradients.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], send: Callable[[torch.Tensor], None], multiple: int = 1
    ) -> None:
        """What to do with the full buffer, and what its length is a multiple of: zeros fill it up."""
        self.parameters = tuple(parameters)
        self._send = send
        self._sizes = [parameter.numel() for parameter in parameters]
        padded = -(-sum(self._sizes) // multiple) * multiple
        self._flat = torch.zeros(padded, device=self.parameters[0].device)
        self._places = self.views(self._flat)
        self._waiting = set(parameters)

    def add(self, parameter: torch.Tensor, factor: float) -> None:
        """Take a gradient off its parameter, times factor, or zeros if it has none; the last one sends the buffer."""
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            self._places[parameter].zero_()
        else:
            torch.mul(gradient, factor, out=self._places[parameter])
        self._waiting.discard(parameter)
        if not self._waiting:
            self._send(self._flat)

    def complete(self, factor: float) -> None:
        """Take in what backward did not reach here (it may have on another rank), and be ready for the next step."""
        for parameter in tuple(self._waiting):
            self.add(parameter, factor)
        self._waiting = set(self.parameters)

    def views(self, flat: torch.Tensor) -> dict[torch.Tensor, torch.Tensor]:
        """Each parameter's place in a tensor as long as the buffer, in the parameter's shape."""
        pieces = torch.split(flat[: sum(self._sizes)], self._sizes)
        return {p: piece.view_as(p) for p, piece in zip(self.parameters, pieces, strict=True)}


def group_by_size(parameters: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Parameters from the last to the first, as backward reaches them, in groups of about BUCKET_BYTES."""
    groups: list[list[torch.Tensor]] = []
    size = BUCKET_BYTES
    for parameter in reversed(list(parameters)):
        if size + parameter.numel() * 4 > BUCKET_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += parameter.numel() * 4
    return groups
