"""The inputs that wait for the model: how many may, and which of them are computed together next."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import accumulate, count

import numpy as np
from tokenizers import Encoding

from tasks.inference.packaged_backends import padded_length, padded_rows
from tasks.inference.packaged_model import Array


class Shares:
    """An amount, such as tokens or bytes, of which every client that uses it has an equal share once half is taken.

    A request may take no more than half of what is left of its client's share, so that a client's large requests always
    leave room for its small ones. What a client has taken before others came stays its own, so together they may have
    a little more than the total.
    """

    def __init__(self, total: int) -> None:
        self.largest, self.taken = total // 2, 0
        self._total = total
        self._of: dict[str, int] = {}

    def of(self, client: str) -> int:
        """Return how much a client has."""
        return self._of.get(client, 0)

    def others(self, client: str) -> int:
        """Return how many other clients have something."""
        return len(self._of) - (client in self._of)

    def has_room(self, client: str, amount: int) -> bool:
        """Return whether a client may take this much more."""
        if 2 * (self.taken + amount) <= self._total:
            return True
        share = self._total // (self.others(client) + 1)
        return 2 * amount <= share - self.of(client)

    def take(self, client: str, amount: int) -> None:
        """Let a client have this much more; a negative amount is given back."""
        self.taken += amount
        self._of[client] = self.of(client) + amount
        if not self._of[client]:
            del self._of[client]

    @contextmanager
    def held(self, client: str, amount: int) -> Iterator[None]:
        """Let a client have this much more within the block."""
        self.take(client, amount)
        try:
            yield
        finally:
            self.take(client, -amount)


def cost(encoding: Encoding) -> int:
    """Return how many tokens an input counts as: at least one, because even an empty input must be waited for."""
    return max(1, len(encoding))


class Request:
    """The inputs of one request, of which there is at least one, and the logits of those that are computed."""

    def __init__(self, encodings: list[Encoding], outputs: int, client: str = "") -> None:
        self.encodings, self.client, self.arrived = encodings, client, time.perf_counter()
        self.logits: Array = np.empty((len(encodings), outputs), np.float32)
        self.left = len(encodings)  # inputs without logits
        self.waiting = sum(map(cost, encodings))  # tokens of the inputs that wait
        self.gone = False  # whether the answer is no longer needed


@dataclass(frozen=True, order=True)
class Input:
    """An input that waits, in the order of turns among those of its client: see Waiting."""

    turn: int
    number: int  # in the order of arrival
    request: Request = field(compare=False)
    place: int = field(compare=False)  # in the request

    @property
    def encoding(self) -> Encoding:
        """The tokenized input."""
        return self.request.encodings[self.place]


@dataclass
class Client:
    """A client whose inputs wait."""

    turn: int  # among clients: see Waiting
    now: int = 0  # the turn among its inputs that is being computed
    requests: int = 0  # those of which inputs wait


class Waiting:
    """The inputs that wait, in classes of nearly equal length.

    Clients take turns, and so do the requests of a client, so that one with many texts does not keep the others
    waiting: the turn of an input is the turn that is being computed when its request arrives, plus the tokens of the
    inputs before it in the request. So a new request comes after what the others have been given already, and before
    what they have beyond that (start-time fair queueing: Goyal et al. 1996, "Start-time Fair Queueing: A Scheduling
    Algorithm for Integrated Services Packet Switching Networks"). The turn of a client is found in the same way from
    the tokens that it is given. `shares` counts the tokens that wait.
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
            waiting = self._classes.setdefault(padded_length(cost(encoding)), {}).setdefault(request.client, [])
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
        """Return how many tokens are computed until those of a new request are, including them, if no other comes."""
        requests = self._clients[client].requests if client in self._clients else 0
        mine = self.shares.of(client)
        own = tokens + min(mine, requests * tokens)
        return own + min(self.shares.taken - mine, self.shares.others(client) * own)

    def take(self, threads: int = 1) -> list[Input]:
        """Take the input whose turn it is, and others of its class, up to the budget. Return [] if none waits.

        Inputs of other lengths would save the time of a batch, but their padding would cost more. If several threads
        wait for batches, it takes no more than the share of each.
        """
        heads = {length: min(turns) for length in list(self._classes) if (turns := list(self._heads(length)))}
        if not heads:
            return []
        first = min(heads, key=lambda length: heads[length])
        self._turn = max(self._turn, heads[first][0])
        batch = self._fill(first, self.shares.taken / threads)
        for each in batch:
            client = self._clients[each.request.client]
            client.now = max(client.now, each.turn)
            self._count(each.request, cost(each.encoding))
        return batch

    def _heads(self, length: int) -> Iterator[tuple[int, Input]]:
        """Yield each client's first input in a class with the turn of the client, and drop those that are gone."""
        waiting = self._classes[length]
        for client, inputs in list(waiting.items()):
            if head := _head(inputs):
                yield self._clients[client].turn, head
            else:
                del waiting[client]
        if not waiting:
            del self._classes[length]

    def _fill(self, length: int, share: float) -> list[Input]:
        """Take inputs of a class, at least one, as the budget allows, until they have a share of tokens."""
        batch: list[Input] = []
        most = max(1, self._budget // length)
        turns = list(self._heads(length))
        heapify(turns)
        while turns and share > 0 and len(batch) < most:
            each = heappop(turns)[1]
            batch.append(each)
            share -= cost(each.encoding)
            inputs, client = self._classes[length][each.request.client], self._clients[each.request.client]
            heappop(inputs)
            client.turn += cost(each.encoding)
            if head := _head(inputs):
                heappush(turns, (client.turn, head))
        rows = len(batch)
        while padded_rows(rows) > rows:  # the last ones wait, instead of empty rows being added
            rows -= 1
        for left in batch[rows:]:
            heappush(self._classes[length][left.request.client], left)
            self._clients[left.request.client].turn -= cost(left.encoding)
        return batch[:rows]

    def _count(self, request: Request, tokens: int) -> None:
        request.waiting -= tokens
        self.shares.take(request.client, -tokens)
        if not request.waiting:
            self._leave(request.client)

    def _enter(self, name: str, tokens: int) -> Client:
        client = self._clients.setdefault(name, Client(self._turn))
        client.requests += 1
        self.shares.take(name, tokens)
        return client

    def _leave(self, name: str) -> None:
        client = self._clients[name]
        client.requests -= 1
        if not client.requests:
            del self._clients[name]


def _head(inputs: list[Input]) -> Input | None:
    """Return the first input of a heap, and drop those of requests that are gone."""
    while inputs and inputs[0].request.gone:
        heappop(inputs)
    return inputs[0] if inputs else None
