"""A sharded parameter server: every rank updates a part of the parameters (as in ZeRO, Rajbhandari et al. 2020)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from include.fields.ranks import Communication
from tasks.communication.exchange import Exchange, GradientBuffer, Kind, Parameters, by_kind, group_by_size, total_norm
from tasks.communication.layout import flat
from tasks.communication.link import Handle, Link
from tasks.communication.ranks import sum_over_ranks
from tasks.communication.rows import SparseRows
from tasks.communication.state import State
from tasks.encoder.models import EncoderWithHead

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16}


class Served(ABC):
    """Parameters of which every rank keeps and updates a part, and with which all ranks compute."""

    parameters: tuple[torch.Tensor, ...]  # the whole parameters of the model
    pieces: Parameters  # this rank's part of each, by name: fp32, whose grad is the sum of the ranks' gradients
    slices: dict[str, slice]  # where each piece lies in the flattened parameter, or, for rows, in its first dimension
    _in_flight: Handle | None = None

    def __init__(self, name: str, link: Link, dtype: torch.dtype) -> None:
        self.name = name
        self._link, self._dtype = link, dtype

    @abstractmethod
    def add(self, parameter: torch.Tensor, factor: float) -> None:
        """Take a gradient, times a factor, from its parameter, and send it, or its bucket when that is complete."""

    @abstractmethod
    def receive(self, factor: float) -> None:
        """Wait for the sums and make them the pieces' gradients. Gradients not yet added are added times a factor."""

    def send(self) -> None:
        """Start to send the updated pieces, which must not change before `arrive`."""
        self._in_flight = self._link.all_gather(self._moved().to(self._dtype), f"{self.name}.parameters")

    @torch.no_grad()
    def arrive(self) -> None:
        """Wait for what the ranks have sent, if anything is in flight, and copy it into the model."""
        if self._in_flight is not None:
            gathered = self._link.wait(self._in_flight)
            self._in_flight = None
            self._take(gathered)

    @abstractmethod
    def _moved(self) -> torch.Tensor: ...

    @abstractmethod
    def _take(self, gathered: torch.Tensor) -> None: ...


class Shard(Served):
    """The `rank`-th part of a bucket. The parts lie in the order of the ranks, and zeros make them equally long."""

    def __init__(self, name: str, parameters: Parameters, link: Link, rank: int, dtype: torch.dtype) -> None:
        super().__init__(name, link, dtype)
        self._sum: Handle = -1
        self._gradient = GradientBuffer(list(parameters.values()), self._send_gradient, multiple=link.size)
        self.parameters = self._gradient.parameters
        flat = torch.cat([parameter.detach().flatten() for parameter in self.parameters])
        length = -(-len(flat) // link.size)
        self._master = torch.zeros(length, device=flat.device)
        own = flat[rank * length : (rank + 1) * length]
        self._master[: len(own)] = own
        self.slices = _overlaps(parameters, rank * length, (rank + 1) * length)
        self.pieces = self._split(self._master)

    def add(self, parameter: torch.Tensor, factor: float) -> None:
        """Add a gradient; the last one sends the bucket."""
        self._gradient.add(parameter, factor)

    def receive(self, factor: float) -> None:
        """Wait for the sum of this rank's shard."""
        self._gradient.complete(factor)
        for name, gradient in self._split(self._link.wait(self._sum)).items():
            self.pieces[name].grad = gradient

    def _send_gradient(self, flat: torch.Tensor) -> None:
        self._sum = self._link.reduce_scatter(flat, f"{self.name}.gradient")

    def _moved(self) -> torch.Tensor:
        return self._master

    def _take(self, gathered: torch.Tensor) -> None:
        for parameter, values in self._gradient.views(gathered).items():
            parameter.copy_(values)

    def _split(self, shard: torch.Tensor) -> Parameters:
        lengths = [part.stop - part.start for part in self.slices.values()]
        return dict(zip(self.slices, torch.split(shard[: sum(lengths)], lengths), strict=True))


class Rows(Served):
    """The rows of word embeddings whose number modulo N is `rank`. Only rows in the sparse gradient are exchanged."""

    def __init__(self, name: str, parameter: torch.Tensor, link: Link, rank: int, dtype: torch.dtype) -> None:
        super().__init__(f"rows.{name}", link, dtype)
        self._rank, self._parameter = rank, parameter
        self.parameters = (parameter,)
        self.slices = {name: slice(rank, None, link.size)}
        self._master = parameter.detach()[rank :: link.size].clone()
        self.pieces = {name: self._master}
        self._sum = SparseRows(f"{self.name}.gradient", parameter.shape, link, parameter.device)
        self._numbers = torch.zeros(0, dtype=torch.long)

    def add(self, parameter: torch.Tensor, factor: float) -> None:
        """Send the rows of the gradient."""
        assert parameter.grad is not None
        self._sum.start(parameter.grad * factor)
        parameter.grad = None

    def receive(self, factor: float) -> None:
        """Wait for the sums of this rank's rows, a sparse gradient of the piece."""
        total = self._sum.finish()
        numbers = total.indices()[0]
        self._numbers = self._by_server(numbers)
        own = numbers % self._link.size == self._rank
        self._master.grad = torch.sparse_coo_tensor(
            numbers[None, own] // self._link.size,
            total.values()[own],
            self._master.shape,
            is_coalesced=True,
            check_invariants=False,
        )

    def send_all_next(self) -> None:
        """Let the next `send` send all rows, not only those in the gradient."""
        self._numbers = self._by_server(torch.arange(len(self._parameter), device=self._parameter.device))

    def _by_server(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return ascending row numbers in the order in which the ranks' rows are gathered."""
        return numbers[torch.argsort(numbers % self._link.size, stable=True)]

    def _moved(self) -> torch.Tensor:
        own = self._numbers[self._numbers % self._link.size == self._rank]
        return self._master[own // self._link.size]

    def _take(self, gathered: torch.Tensor) -> None:
        self._parameter[self._numbers] = gathered.to(self._parameter.dtype)


def _overlaps(parameters: Parameters, first: int, end: int) -> dict[str, slice]:
    """Return the slice of each flattened parameter that lies in [first, end) of their concatenation, if not empty."""
    overlaps, start = {}, 0
    for name, parameter in parameters.items():
        part = slice(max(first - start, 0), min(end - start, parameter.numel()))
        if part.start < part.stop:
            overlaps[name] = part
        start += parameter.numel()
    return overlaps


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
        for modules, parameters in _units(model) if settings.staleness == 0 else ():
            needed = dict.fromkeys(self._server_of[p] for p in parameters if p in self._server_of)
            for module in modules:
                module.register_forward_pre_hook(partial(_arrive, tuple(needed)))

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
