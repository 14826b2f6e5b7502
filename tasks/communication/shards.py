"""What a rank of the parameter server serves: a shard of a bucket of parameters, or rows of word embeddings."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from tasks.communication.buckets import GradientBuffer
from tasks.communication.exchange import Parameters
from tasks.communication.link import Handle, Link
from tasks.communication.rows import SparseRows


class Served(ABC):
    """Parameters of which every rank keeps and updates a part, and with which all ranks compute."""

    parameters: tuple[torch.Tensor, ...]  # the whole parameters of the model
    pieces: Parameters  # this rank's part of each, by name: fp32, whose grad is the sum of the ranks' gradients
    slices: dict[str, slice]  # where each piece lies in the flattened parameter, or, for rows, in its first dimension
    _in_flight: Handle | None = None

    def __init__(self, name: str, link: Link, dtype: torch.dtype) -> None:
        """Serve parameters under a unique name, over a link, whose ranks receive them as `dtype`."""
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
