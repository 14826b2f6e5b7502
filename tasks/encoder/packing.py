"""How the tokens of a padded batch become one row of tokens, and padded again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch.nn import functional


@dataclass(frozen=True)
class Packing:
    """Where the tokens of a batch [rows, longest] are, without the padding.

    Attributes:
        mask: true where there is a token, [rows, longest].
        places: of the tokens in the flattened batch, int64 [tokens].
        offsets: of each row's first token in the row of tokens, and the end of the last row, int32 [rows + 1].
    """

    mask: torch.Tensor
    places: torch.Tensor
    offsets: torch.Tensor

    @classmethod
    def of(cls, attention_mask: torch.Tensor) -> Self:
        """From a batch's mask [rows, longest] on the CPU; on a GPU, counting its tokens would hold everything up."""
        mask = attention_mask.bool()
        ends = mask.sum(1).cumsum(0)
        return cls(mask, mask.flatten().nonzero().squeeze(1), functional.pad(ends, (1, 0)).int())

    def to(self, device: torch.device) -> Packing:
        """The same on a device."""
        return Packing(*(part.to(device, non_blocking=True) for part in (self.mask, self.places, self.offsets)))

    @property
    def positions(self) -> torch.Tensor:
        """Each token's position in its own row, counted from 0, [tokens]."""
        return self.places % self.mask.shape[1]

    def pack(self, values: torch.Tensor) -> torch.Tensor:
        """Of [rows, longest, ...], what belongs to tokens, [tokens, ...]."""
        return values.flatten(0, 1).index_select(0, self.places)

    def pad(self, values: torch.Tensor) -> torch.Tensor:
        """Of [tokens, ...], the batch [rows, longest, ...] with zeros for padding."""
        each = values.shape[1:]
        padded = values.new_zeros(self.mask.numel(), *each)
        return padded.index_copy(0, self.places, values).view(*self.mask.shape, *each)
