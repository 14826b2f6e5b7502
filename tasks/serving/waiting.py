"""The inputs that wait for the model, and which of them are computed together next."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate, count

import numpy as np
from tokenizers import Encoding

from tasks.inference.packaged_model import Array
from tasks.inference.shapes import padded_length, padded_rows

#: An input joins a batch only if its length differs by no more than this share from that of the input that is next.
NEAR = 0.5
#: Batches of more rows than this have as many as a power of two, so that they have few different shapes.
SMALL = 8


class Request:
    """The inputs of one request, and the logits of those that are computed.

    Args:
        encodings: its inputs, tokenized. There is at least one.
        outputs: number of outputs of the model.

    Attributes:
        logits: float32 [inputs, outputs].
        waiting: number of tokens of the inputs that wait.
        left: number of inputs that have no logits yet.
        gone: whether nobody waits for the answer any more.
        arrived: the time, as time.perf_counter tells it.
    """

    def __init__(self, encodings: list[Encoding], outputs: int) -> None:
        self.encodings, self.left, self.gone = encodings, len(encodings), False
        self.waiting, self.arrived = sum(map(len, encodings)), time.perf_counter()
        self.logits: Array = np.empty((len(encodings), outputs), np.float32)


@dataclass(frozen=True, order=True)
class Input:
    """An input that waits.

    Attributes:
        turn: when it is its turn: see Waiting.
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


class Waiting:
    """The inputs that wait, in classes of nearly equal length.

    Requests take turns, so that one with many texts does not keep the others waiting: the turn of an input is the turn
    that is being computed when its request arrives, plus the tokens of the inputs before it in the request. So a new
    request comes after what the others have been given already, and before what they have beyond that (start-time fair
    queueing: Goyal et al. 1996, "Start-time Fair Queueing: A Scheduling Algorithm for Integrated Services Packet
    Switching Networks").

    Args:
        batch_tokens: maximum number of tokens per batch, including padding. A longer input is a batch of its own.

    Attributes:
        tokens: number of tokens of all inputs that wait.
    """

    def __init__(self, batch_tokens: int) -> None:
        self._budget, self._numbers, self._turn = batch_tokens, count(), 0
        self._classes: dict[int, list[Input]] = {}  # heaps
        self.tokens = 0

    def add(self, request: Request) -> None:
        """Let the inputs of a request wait."""
        before = accumulate(map(len, request.encodings), initial=self._turn)
        for place, (encoding, turn) in enumerate(zip(request.encodings, before, strict=False)):
            waiting = self._classes.setdefault(padded_length(len(encoding)), [])
            heappush(waiting, Input(turn, next(self._numbers), request, place))
        self.tokens += request.waiting

    def remove(self, request: Request) -> None:
        """Forget those inputs of a request that wait."""
        request.gone = True  # its inputs are dropped when it would be their turn
        self.tokens -= request.waiting
        request.waiting = 0

    def take(self) -> list[Input]:
        """Remove and return the inputs of the next batch; empty if none waits.

        The input whose turn it is determines the length. Others of this length join it, then those of near lengths, up
        to the budget.
        """
        heads = {length: found for length in self._classes if (found := self._head(length))}
        if not heads:
            return []
        first = min(heads, key=lambda length: heads[length])
        self._turn = max(self._turn, heads[first].turn)
        near = [length for length in heads if abs(length - first) <= NEAR * first]
        batch = self._fill(sorted(near, key=lambda length: (abs(length - first), length)))
        for each in batch:
            each.request.waiting -= len(each.encoding)
            self.tokens -= len(each.encoding)
        return batch

    def _head(self, length: int) -> Input | None:
        """Return the first input of a class, after those that nobody waits for are dropped."""
        waiting = self._classes[length]
        while waiting and waiting[0].request.gone:
            heappop(waiting)
        return waiting[0] if waiting else None

    def _fill(self, lengths: list[int]) -> list[Input]:
        """Take the inputs of these lengths, in this order, as long as the budget allows."""
        batch: list[tuple[int, Input]] = []
        longest = 0
        for length in lengths:
            longest = max(longest, length)
            while (head := self._head(length)) and (not batch or padded_rows(len(batch) + 1) * longest <= self._budget):
                batch.append((length, head))
                heappop(self._classes[length])
        rows = len(batch) if len(batch) <= SMALL else 1 << (len(batch).bit_length() - 1)
        for length, left in batch[rows:]:
            heappush(self._classes[length], left)
        return [each for _, each in batch[:rows]]
