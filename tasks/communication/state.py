"""State that a checkpoint keeps, in torch's own protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

import torch

State = dict[str, torch.Tensor]
_S = TypeVar("_S")


class Stateful(Protocol[_S]):
    """Something whose state a checkpoint keeps: tensors by name (`State`), or values that JSON can hold."""

    def state_dict(self) -> _S:
        """Return the state. Tensors in it may still be in use: copy or write them before the next step."""

    def load_state_dict(self, state: _S) -> None:
        """Replace the state by one that `state_dict` returned, in this or an earlier process."""


def prefixed(name: str, state: Mapping[str, torch.Tensor]) -> State:
    """Return the state with its keys as <name>.<key>."""
    return {f"{name}.{key}": value for key, value in state.items()}


def part_of(state: Mapping[str, torch.Tensor], name: str) -> State:
    """Return the state whose keys are <name>.<key>, by key."""
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
