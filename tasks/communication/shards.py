"""What a rank of the parameter server serves: a shard of a bucket of parameters, or rows of word embeddings."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from tasks.communication.buckets import GradientBuffer
from tasks.communication.compression.sparse_rows import SparseRows
from tasks.communication.exchange import Parameters
from tasks.communication.link import Handle, Link


class Served(ABC):
    """Some of the model's parameters: every rank keeps and updates a part, all ranks compute on the whole.

    Every step: add each gradient, receive, and when the optimizer has moved the pieces: send, and later arrive.

    Attributes:
        parameters: the model's, whole.
        pieces: by name of its parameter, this rank's part of it: fp32, with the gradient's sum over the ranks as grad.
        slices: where the pieces lie: in the parameter in one dimension, or, for rows, in its first one.
    """

    parameters: tuple[torch.Tensor, ...]
    pieces: Parameters
    slices: dict[str, slice]
    _under_way: Handle | None = None

    def __init__(self, name: str, link: Link, dtype: torch.dtype) -> None:
        """A name of its own, the ranks that share the parameters, and the format in which these travel back."""
        self.name = name
        self._link, self._dtype = link, dtype

    @abstractmethod
    def add(self, parameter: torch.Tensor, factor: float) -> None:
        """Take a gradient off its parameter, times factor; it leaves at once, or with the last of its bucket."""

    @abstractmethod
    def receive(self, factor: float) -> None:
        """Wait for the sums and make them the pieces' grad; gradients that were not added count times factor."""

    def send(self) -> None:
        """Start to hand out what the optimizer has moved, which stays as it is until arrive."""
        self._under_way = self._link.all_gather(self._moved().to(self._dtype), f"{self.name}.parameters")

    @torch.no_grad()
    def arrive(self) -> None:
        """Put what the ranks have sent, if anything is under way, into the model."""
        if self._under_way is not None:
            gathered = self._link.wait(self._under_way)
            self._under_way = None
            self._take(gathered)

    @abstractmethod
    def _moved(self) -> torch.Tensor:
        """This rank's part of what send hands out."""

    @abstractmethod
    def _take(self, gathered: torch.Tensor) -> None:
        """Put all ranks' parts into the model."""


class Shard(Served):
    """A rank's part of a bucket, one after the other in the order of the ranks; zeros make the parts equally long."""

    def __init__(self, name: str, parameters: Parameters, link: Link, rank: int, dtype: torch.dtype) -> None:
        """This rank of the link serves the rank-th shard."""
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
        """The last gradient sends the bucket off."""
        self._gradient.add(parameter, factor)

    def receive(self, factor: float) -> None:
        """The sum of this rank's shard."""
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
    """Every N-th row of word embeddings with row-sparse gradients. Only the rows in a gradient travel."""

    def __init__(self, name: str, parameter: torch.Tensor, link: Link, rank: int, dtype: torch.dtype) -> None:
        """This rank of the link serves the rows whose number modulo N is rank."""
        super().__init__(f"rows.{name}", link, dtype)
        self._rank, self._parameter = rank, parameter
        self.parameters = (parameter,)
        self.slices = {name: slice(rank, None, link.size)}
        self._master = parameter.detach()[rank :: link.size].clone()
        self.pieces = {name: self._master}
        self._sum = SparseRows(f"{self.name}.gradient", parameter.shape, link, parameter.device)
        self._numbers = torch.zeros(0, dtype=torch.long)

    def add(self, parameter: torch.Tensor, factor: float) -> None:
        """The rows leave at once."""
        assert parameter.grad is not None
        self._sum.start(parameter.grad * factor)
        parameter.grad = None

    def receive(self, factor: float) -> None:
        """The sums of this rank's rows, as a sparse gradient of the piece."""
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
        """The next send hands out all rows, not only those in the gradient."""
        self._numbers = self._by_server(torch.arange(len(self._parameter), device=self._parameter.device))

    def _by_server(self, numbers: torch.Tensor) -> torch.Tensor:
        """Rising row numbers in the order in which the ranks' rows are gathered."""
        return numbers[torch.argsort(numbers % self._link.size, stable=True)]

    def _moved(self) -> torch.Tensor:
        own = self._numbers[self._numbers % self._link.size == self._rank]
        return self._master[own // self._link.size]

    def _take(self, gathered: torch.Tensor) -> None:
        self._parameter[self._numbers] = gathered.to(self._parameter.dtype)


def _overlaps(parameters: Parameters, first: int, end: int) -> dict[str, slice]:
    """Which elements of each parameter lie at [first, end) of all of them in a row; only of those that have some."""
    overlaps, start = {}, 0
    for name, parameter in parameters.items():
        part = slice(max(first - start, 0), min(end - start, parameter.numel()))
        if part.start < part.stop:
            overlaps[name] = part
        start += parameter.numel()
    return overlaps
