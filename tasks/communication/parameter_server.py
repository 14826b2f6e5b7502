"""A sharded parameter server: every rank serves a part of the parameters, and computes with all of them.

As in ZeRO (Rajbhandari et al. 2020), gradients are summed to the rank whose optimizer updates their parameters in fp32.
The parameters are gathered by all ranks while the next step begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from include.sections import Communication
from tasks.communication.buckets import group_by_size
from tasks.communication.exchange import Exchange, Kind, Parameters, by_kind, total_norm
from tasks.communication.layout import flat
from tasks.communication.link import Link
from tasks.communication.ranks import sum_over_ranks
from tasks.communication.shards import Rows, Served, Shard
from tasks.communication.state import State
from tasks.encoder.models import EncoderWithHead

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16}


class ParameterServer(Exchange):
    """Serves shards of all parameters, and rows of word embeddings with row-sparse gradients.

    Without staleness the forward pass of each layer waits for the layer's own parameters. With a staleness of 1, the
    parameters after step t enter the model when step t + 1 has computed its gradient (Ho et al. 2013).
    """

    sharded = True

    def __init__(self, model: EncoderWithHead, settings: Communication) -> None:
        super().__init__(model)
        self._links = {"embeddings": Link(), "matrices": Link(), "rest": Link()}
        dtype = _DTYPES[settings.server_parameters]
        self._rows, shards = self._build_shards(model, dtype)
        self._served: list[Served] = [*shards, *self._rows]  # in the order of the backward pass
        self._server_of = {parameter: served for served in self._served for parameter in served.parameters}
        self.parameters = {name: piece for served in self._served for name, piece in served.pieces.items()}
        self._momentum = ServerMomentum(self.parameters, settings.server_momentum) if settings.server_momentum else None
        for parameter in self._server_of:
            parameter.register_post_accumulate_grad_hook(self._send)  # type: ignore[no-untyped-call]
            parameter.data.copy_(parameter.data.to(dtype))  # the first step also rounds as the link does
        if settings.staleness == 0:
            self._wait_in_forward(model)

    def synchronize_gradients(self) -> bool:
        """Wait for the sums of this rank's part, and exchange its norm and the request to stop with the other ranks."""
        self.receive_parameters()
        for served in self._served:
            served.receive(1 / self.loss_scale)
        if self._momentum:
            self._momentum.add()
        square = float(total_norm(self.parameters)) ** 2
        squares, stop_requests = sum_over_ranks([square, float(self.stop)], "norm")
        self._norm = math.sqrt(squares)  # of the whole model's gradient, with the server's momentum if there is one
        return stop_requests > 0

    def discard_step(self) -> None:
        """Restore the server's momentum."""
        if self._momentum:
            self._momentum.discard_step()

    def send_parameters(self) -> None:
        """Start to gather the parameters, in the order in which the forward pass needs them."""
        for served in reversed(self._served):
            served.send()

    def receive_parameters(self) -> None:
        """Wait for the parameters that are in flight."""
        _arrive(self._served)

    def gather_embeddings(self) -> None:
        """Gather all rows, and wait for them."""
        for rows in self._rows:
            rows.send_all_next()
            rows.send()
            rows.arrive()

    def state_dict(self) -> State:
        """Return this rank's parts, as <parameter>.master, and the server's momentum, as <parameter>.momentum."""
        # Parameters in flight are sent again when it is loaded; under staleness, the model's own weights are older.
        masters = {f"{name}.master": piece for name, piece in self.parameters.items()}
        return masters | (self._momentum.state_dict() if self._momentum else {})

    def load_state_dict(self, state: State) -> None:
        """Replace the state, and send the parameters again."""
        self.receive_parameters()
        for name, piece in self.parameters.items():
            piece.copy_(state[f"{name}.master"])
        if self._momentum:
            self._momentum.load_state_dict(state)
        for rows in self._rows:
            rows.send_all_next()
        self.send_parameters()

    def redistribute(self, states: Sequence[State]) -> State:
        """Return this rank's part of the states, or of the optimizers' states, of any number of ranks."""
        slices = {name: part for served in self._served for name, part in served.slices.items()}
        return {
            key: values[slices[name]] if values.ndim else values
            for key, values in join(states).items()
            if (name := key.rpartition(".")[0]) in slices
        }

    def _build_shards(self, model: EncoderWithHead, dtype: torch.dtype) -> tuple[list[Rows], list[Shard]]:
        kinds, rank = by_kind(model), flat().rank
        names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        matrices = group_by_size(kinds["matrices"].values())
        groups: list[tuple[Kind, list[torch.Tensor]]] = [("matrices", group) for group in matrices]
        groups.append(("rest", list(kinds["rest"].values())))
        shards = [
            Shard(f"{kind}.{number}", {names[p]: p for p in group}, self._links[kind], rank, dtype)
            for number, (kind, group) in enumerate(groups)
        ]
        rows = [Rows(name, p, self._links["embeddings"], rank, dtype) for name, p in kinds["embeddings"].items()]
        return rows, shards

    def _send(self, parameter: torch.Tensor) -> None:
        if self._sending:
            self._server_of[parameter].add(parameter, 1 / self.loss_scale)

    def _wait_in_forward(self, model: nn.Module) -> None:
        for modules, parameters in _units(model):
            needed = dict.fromkeys(self._server_of[p] for p in parameters if p in self._server_of)
            for module in modules:
                module.register_forward_pre_hook(partial(_arrive, tuple(needed)))


class ServerMomentum:
    """Momentum on this rank's pieces, or their rows in the gradient: g_t = sum of gradients + momentum g_(t-1)."""

    def __init__(self, pieces: Parameters, momentum: float) -> None:
        self._pieces, self._momentum = pieces, momentum
        self._values = {name: torch.zeros_like(piece) for name, piece in pieces.items()}
        self._before: dict[str, tuple[torch.Tensor | slice, torch.Tensor]] = {}

    def add(self) -> None:
        """Replace each piece's gradient by g_t. The optimizer clips a copy of it."""
        for name, piece in self._pieces.items():
            assert piece.grad is not None
            where = piece.grad.indices()[0] if piece.grad.is_sparse else slice(None)
            gradient = piece.grad.values() if piece.grad.is_sparse else piece.grad
            before = self._values[name][where].clone()
            self._values[name][where] = gradient.add_(before, alpha=self._momentum)
            self._before[name] = where, before

    def discard_step(self) -> None:
        """Undo `add`, so that the NaN of a skipped step does not stay."""
        for name, (where, before) in self._before.items():
            self._values[name][where] = before

    def state_dict(self) -> State:
        """Return g_t, as <parameter>.momentum."""
        return {f"{name}.momentum": values for name, values in self._values.items()}

    def load_state_dict(self, state: State) -> None:
        """Replace g_t."""
        for name, values in self._values.items():
            values.copy_(state[f"{name}.momentum"])


def join(states: Sequence[State]) -> State:
    """Join the states of all ranks in their order: shards become [elements], word embeddings [rows, features]."""
    keys = dict.fromkeys(key for state in states for key in state)
    return {key: _join([state[key] for state in states if key in state]) for key in keys}


def _join(parts: list[torch.Tensor]) -> torch.Tensor:
    if parts[0].ndim == 0:
        return parts[0]
    if parts[0].ndim == 1:
        return torch.cat(parts)
    whole = parts[0].new_empty(sum(len(part) for part in parts), *parts[0].shape[1:])
    for rank, rows in enumerate(parts):
        whole[rank :: len(parts)] = rows
    return whole


def _arrive(served: Sequence[Served], *_: object) -> None:
    for part in served:
        part.arrive()


def _units(model: nn.Module) -> list[tuple[list[nn.Module], list[nn.Parameter]]]:
    """Group modules by layer, with their parameters: some encoders use weights of modules that they never call."""
    layers = [layer for modules in model.modules() if isinstance(modules, nn.ModuleList) for layer in modules]
    inside = {module for layer in layers for module in layer.modules()}
    outside = [module for module in model.modules() if module not in inside]
    common = [parameter for module in outside for parameter in module.parameters(recurse=False)]
    return [(outside, common), *(([layer], list(layer.parameters())) for layer in layers)]
