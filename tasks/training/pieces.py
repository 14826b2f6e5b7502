"""Files with parts of tensors, from which any rank of any layout reads what it needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
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
    """Return the parts that `place_of` names of all tensors in the files, each put together from its pieces."""
    found: State = {}
    with ExitStack() as stack:
        for file in files:
            content = stack.enter_context(safe_open(file, "pt"))
            header = content.metadata() or {}
            for name in content.keys():  # noqa: SIM118  # it is no mapping
                place = place_of(name) if place_of else None
                if place is not ABSENT:
                    _add(found, name, content.get_slice(name), json.loads(header.get(name, "{}")), place)
    return {name: tensor.to(device) for name, tensor in found.items()}


def _add(found: State, name: str, piece: Any, described: dict[str, Any], place: Place | None) -> None:
    """Put a piece, which its file describes unless it is a whole tensor, into the part of a tensor."""
    shape = tuple(piece.get_shape())
    if not shape:  # the optimizer's count of steps
        found[name] = piece[...].clone()
        return
    begin = (0,) * len(shape)
    offset, whole = tuple(described.get("offset", begin)), tuple(described.get("whole", shape))
    place = place or Place(begin, whole, whole, written=False)
    values = piece[...]
    if name not in found:
        found[name] = torch.empty(place.shape, dtype=values.dtype)
    _copy(values, offset, found[name], place)


def _copy(piece: torch.Tensor, offset: tuple[int, ...], part: torch.Tensor, place: Place) -> None:
    """Copy where a piece and the part overlap, if they do."""
    begin = [max(pair) for pair in zip(offset, place.offset, strict=True)]
    ends = [min(a + n, b + m) for a, n, b, m in zip(offset, piece.shape, place.offset, place.shape, strict=True)]
    if all(low < high for low, high in zip(begin, ends, strict=True)):
        there = tuple(slice(low - o, high - o) for low, high, o in zip(begin, ends, offset, strict=True))
        here = tuple(slice(low - o, high - o) for low, high, o in zip(begin, ends, place.offset, strict=True))
        part[here] = piece[there]
