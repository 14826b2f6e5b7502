"""Conversion between a padded batch and a single sequence of its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch.nn import functional


@dataclass(frozen=True)
class Packing:
    """The positions of the tokens in a padded batch [rows, longest row].

    Attributes:
        mask: true for tokens and false for padding, bool [rows, longest row].
        places: indices of the tokens in the flattened batch, int64 [tokens].
        offsets: index of the first token of each row in the packed sequence, followed by the total number of tokens,
            int32 [rows + 1].
    """

    mask: torch.Tensor
    places: torch.Tensor
    offsets: torch.Tensor

    @classmethod
    def of(cls, attention_mask: torch.Tensor) -> Self:
        """Return the packing of a batch.

        Args:
            attention_mask: 1 for tokens and 0 for padding, [rows, longest row]. It should be on the CPU, because
                counting tokens on a GPU would synchronize with it.
        """
        mask = attention_mask.bool()
        ends = mask.sum(1).cumsum(0)
        return cls(mask, mask.flatten().nonzero().squeeze(1), functional.pad(ends, (1, 0)).int())

    def to(self, device: torch.device) -> Packing:
        """Return the same packing on a device."""
        return Packing(*(send(part, device) for part in (self.mask, self.places, self.offsets)))

    @property
    def positions(self) -> torch.Tensor:
        """The position of each token in its row, counted from 0, int64 [tokens]."""
        return self.places % self.mask.shape[1]

    def pack(self, values: torch.Tensor) -> torch.Tensor:
        """Drop the padding: convert values of shape [rows, longest row, ...] to [tokens, ...]."""
        return values.flatten(0, 1).index_select(0, self.places)

    def pad(self, values: torch.Tensor) -> torch.Tensor:
        """Restore the padding as zeros: convert values of shape [tokens, ...] to [rows, longest row, ...]."""
        each = values.shape[1:]
        padded = values.new_zeros(self.mask.numel(), *each)
        return padded.index_copy(0, self.places, values).view(*self.mask.shape, *each)


def send(part: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on a device. A GPU fetches it from pinned memory, and neither Python nor the GPU waits for it."""
    if device.type == "cuda" and part.device.type == "cpu":
        part = part.pin_memory()
    return part.to(device, non_blocking=True)
