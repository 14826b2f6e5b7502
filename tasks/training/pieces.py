"""Files with parts of tensors, from which any rank of any layout reads what it needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tasks.communication.layout import Place
from tasks.communication.state import State

#: Returns where a tensor's part of this rank lies, by the tensor's name. None: the rank has the whole tensor.
PlaceOf = Callable[[str], Place | None]
#: The place of a tensor of which this rank has nothing.
ABSENT = Place((), (), (), written=False)


def save_pieces(tensors: State, place_of: PlaceOf | None, file: Path) -> None:
    """Write parts of tensors, with the place of each in the file's header."""
    header = {}
    for name, tensor in tensors.items():
        place = place_of(name) if place_of else None
        if place is not None and tensor.ndim:
            header[name] = json.dumps({"offset": place.offset, "whole": place.whole})
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, file, header or None)


def load_pieces(files: Iterable[Path], place_of: PlaceOf | None, device: torch.device) -> State:
    """Return the parts that `place_of` names of all tensors in the files, each put together from its pieces.

    Raises:
        KeyError: the files lack some of what is asked for of a tensor, which the error names.
    """
    found: dict[str, Assembly] = {}
    for file in files:
        with safe_open(file, "pt") as content:
            header = content.metadata() or {}
            for name in content.keys():  # noqa: SIM118  # it is no mapping
                place = place_of(name) if place_of else None
                if place is not ABSENT:
                    _add(found, name, content.get_slice(name)[...], json.loads(header.get(name, "{}")), place)
    for name, assembly in found.items():
        if not assembly.complete:
            raise KeyError(f"a part of {name}")
    return {name: assembly.values.to(device) for name, assembly in found.items()}


def _add(
    found: dict[str, Assembly], name: str, piece: torch.Tensor, described: dict[str, Any], place: Place | None
) -> None:
    """Add a piece, which its file describes unless it is a whole tensor, to the part of a tensor."""
    begin = (0,) * piece.ndim
    if place is None or not piece.ndim:  # the optimizer's count of steps has no parts
        whole = tuple(described.get("whole", piece.shape))
        place = Place(begin, whole, whole, written=False)
    found.setdefault(name, Assembly(place, piece.dtype)).add(piece, tuple(described.get("offset", begin)))


class Assembly:
    """A part of a tensor that is put together from pieces, which are other parts of it.

    Attributes:
        values: the part.
    """

    def __init__(self, place: Place, dtype: torch.dtype) -> None:
        self.values = torch.empty(place.shape, dtype=dtype)
        self._place = place
        self._filled: dict[tuple[tuple[int, int], ...], int] = {}

    @property
    def complete(self) -> bool:
        """Whether the pieces fill the part. Of two pieces that overlap, both are the same."""
        return sum(self._filled.values()) == self.values.numel()

    def add(self, piece: torch.Tensor, offset: tuple[int, ...]) -> None:
        """Copy where a piece, which begins there in the whole tensor, and the part overlap, if they do."""
        place = self._place
        begin = [max(pair) for pair in zip(offset, place.offset, strict=True)]
        ends = [min(a + n, b + m) for a, n, b, m in zip(offset, piece.shape, place.offset, place.shape, strict=True)]
        if all(low < high for low, high in zip(begin, ends, strict=True)):
            there = tuple(slice(low - o, high - o) for low, high, o in zip(begin, ends, offset, strict=True))
            here = tuple(slice(low - o, high - o) for low, high, o in zip(begin, ends, place.offset, strict=True))
            self.values[here] = piece[there]
            self._filled[tuple(zip(begin, ends, strict=True))] = piece[there].numel()
