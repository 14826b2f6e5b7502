"""The inputs that wait for the model, and which of them are computed together next."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import accumulate, count

import numpy as np
from tokenizers import Encoding

from tasks.inference.packaged_model import Array
from tasks.inference.shapes import padded_length, padded_rows
from tasks.serving.shares import Shares

#: An input joins a batch only if its length differs by no more than this share from that of the input that is next.
NEAR = 0.5
#: Batches of more rows than this have as many as a power of two, so that they have few different shapes.
SMALL = 8


def cost(encoding: Encoding) -> int:
    """Return as how many tokens an input counts. Even one without any must be waited for."""
    return max(1, len(encoding))


class Request:
    """The inputs of one request, and the logits of those that are computed.

    Args:
        encodings: its inputs, tokenized. There is at least one.
        outputs: number of outputs of the model.
        client: who sends it.

    Attributes:
        logits: float32 [inputs, outputs].
        waiting: number of tokens of the inputs that wait.
        left: number of inputs that have no logits yet.
        gone: whether nobody waits for the answer any more.
        arrived: the time, as time.perf_counter tells it.
    """

    def __init__(self, encodings: list[Encoding], outputs: int, client: str = "") -> None:
        self.encodings, self.client, self.left, self.gone = encodings, client, len(encodings), False
        self.waiting, self.arrived = sum(map(cost, encodings)), time.perf_counter()
        self.logits: Array = np.empty((len(encodings), outputs), np.float32)


@dataclass(frozen=True, order=True)
class Input:
    """An input that waits.

    Attributes:
        turn: when it is its turn among those of its client: see Waiting.
        number: its number in the order of arrival.
        request: its request.
        place: its place there.
    """

    turn: int
    number: int
    request: Request = field(compare=False)
    place: int = field(compare=False)

    @property
    def encoding(self) -> Encoding:
        """The tokenized input."""
        return self.request.encodings[self.place]


@dataclass
class Client:
    """A client of which inputs wait.

    Attributes:
        turn: when it is its turn among clients: see Waiting.
        now: the turn among its inputs that is being computed.
        requests: number of its requests of which inputs wait.
    """

    turn: int
    now: int = 0
    requests: int = 0


#: An input with the turn of its client, by which inputs of several clients are compared.
Turn = tuple[int, Input]


class Waiting:
    """The inputs that wait, in classes of nearly equal length.

    Clients take turns, and so do the requests of a client, so that one with many texts does not keep the others
    waiting: the turn of an input is the turn that is being computed when its request arrives, plus the tokens of the
    inputs before it in the request. So a new request comes after what the others have been given already, and before
    what they have beyond that (start-time fair queueing: Goyal et al. 1996, "Start-time Fair Queueing: A Scheduling
    Algorithm for Integrated Services Packet Switching Networks"). The turn of a client is found in the same way from
    the tokens that it is given.

    Args:
        batch_tokens: maximum number of tokens per batch, including padding. A longer input is a batch of its own.
        shares: where the tokens that wait are counted.
    """

    def __init__(self, batch_tokens: int, shares: Shares) -> None:
        self._budget, self.shares, self._numbers, self._turn = batch_tokens, shares, count(), 0
        self._clients: dict[str, Client] = {}
        self._classes: dict[int, dict[str, list[Input]]] = {}  # for each length and client, a heap

    def add(self, request: Request) -> None:
        """Let the inputs of a request wait."""
        client = self._enter(request.client, request.waiting)
        before = accumulate(map(cost, request.encodings), initial=client.now)
        for place, (encoding, turn) in enumerate(zip(request.encodings, before, strict=False)):
            waiting = self._classes.setdefault(padded_length(len(encoding)), {}).setdefault(request.client, [])
            heappush(waiting, Input(turn, next(self._numbers), request, place))

    def remove(self, request: Request) -> None:
        """Forget those inputs of a request that wait."""
        request.gone = True  # its inputs are dropped when it would be their turn
        if request.waiting:
            self._count(request, request.waiting)

    @contextmanager
    def coming(self, client: str, tokens: int) -> Iterator[None]:
        """Count a request that is being tokenized as one that waits, with its tokens as far as can be told."""
        self._enter(client, tokens)
        try:
            yield
        finally:
            self.shares.take(client, -tokens)
            self._leave(client)

    def ahead(self, client: str, tokens: int) -> int:
        """Return how many tokens are computed until those of a new request are, if no other one comes.

        Args:
            client: who sends the request.
            tokens: the number of its tokens, which count too.
        """
        requests = self._clients[client].requests if client in self._clients else 0
        mine = self.shares.of(client)
        own = tokens + min(mine, requests * tokens)
        return own + min(self.shares.taken - mine, self.shares.others(client) * own)

    def take(self) -> list[Input]:
        """Remove and return the inputs of the next batch; empty if none waits.

        The input whose turn it is determines the length. Others of this length join it, then those of near lengths, up
        to the budget.
        """
        heads = {length: min(turns) for length in list(self._classes) if (turns := list(self._heads(length)))}
        if not heads:
            return []
        first = min(heads, key=lambda length: heads[length])
        self._turn = max(self._turn, heads[first][0])
        near = [length for length in heads if abs(length - first) <= NEAR * first]
        batch = self._fill(sorted(near, key=lambda length: (abs(length - first), length)))
        for each in batch:
            client = self._clients[each.request.client]
            client.now = max(client.now, each.turn)
            self._count(each.request, cost(each.encoding))
        return batch

    def _heads(self, length: int) -> Iterator[Turn]:
        """Yield the first input of each client in a class, after those that nobody waits for are dropped."""
        waiting = self._classes[length]
        for client, inputs in list(waiting.items()):
            if head := _head(inputs):
                yield self._clients[client].turn, head
            else:
                del waiting[client]
        if not waiting:
            del self._classes[length]

    def _fill(self, lengths: list[int]) -> list[Input]:
        """Take the inputs of these lengths, in this order, as long as the budget allows."""
        batch: list[tuple[int, Input]] = []
        longest = 0
        for length in lengths:
            longest = max(longest, length)
            turns = list(self._heads(length))
            heapify(turns)
            while turns and (not batch or padded_rows(len(batch) + 1) * longest <= self._budget):
                each = heappop(turns)[1]
                batch.append((length, each))
                inputs, client = self._classes[length][each.request.client], self._clients[each.request.client]
                heappop(inputs)
                client.turn += cost(each.encoding)
                if head := _head(inputs):
                    heappush(turns, (client.turn, head))
        rows = len(batch) if len(batch) <= SMALL else 1 << (len(batch).bit_length() - 1)
        for length, left in batch[rows:]:
            heappush(self._classes[length][left.request.client], left)
            self._clients[left.request.client].turn -= cost(left.encoding)
        return [each for _, each in batch[:rows]]

    def _count(self, request: Request, tokens: int) -> None:
        """Count tokens of a request that do not wait any more."""
        request.waiting -= tokens
        self.shares.take(request.client, -tokens)
        if not request.waiting:
            self._leave(request.client)

    def _enter(self, name: str, tokens: int) -> Client:
        """Count a request with its tokens."""
        client = self._clients.setdefault(name, Client(self._turn))
        client.requests += 1
        self.shares.take(name, tokens)
        return client

    def _leave(self, name: str) -> None:
        """Count a request no more."""
        client = self._clients[name]
        client.requests -= 1
        if not client.requests:
            del self._clients[name]


def _head(inputs: list[Input]) -> Input | None:
    """Return the first input of a heap, after those that nobody waits for are dropped."""
    while inputs and inputs[0].request.gone:
        heappop(inputs)
    return inputs[0] if inputs else None
