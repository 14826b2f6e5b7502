"""Micro-batches: inputs of many requests that are computed together, without any of them waiting for a clock."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from tokenizers import Encoding

from tasks.encoder.windows import pool
from tasks.inference.packaged_model import Array, PackagedModel
from tasks.serving.metrics import Metrics
from tasks.serving.refusal import Overloaded, TooLarge
from tasks.serving.waiting import Input, Request, Waiting

log = logging.getLogger(__name__)

#: The number of characters per token by which texts are estimated until they are tokenized. In the movie reviews it is
#: 4.2.
CHARACTERS = 4
#: Texts of no more characters are tokenized in the event loop, because waking another thread costs more.
SHORT = 2_000
#: The weight of the last batch in the moving average of the speed.
NEWEST = 0.1


@dataclass(frozen=True)
class Limits:
    """How much the batcher takes on.

    Attributes:
        batch_tokens: maximum number of tokens per batch, including padding. A longer input is a batch of its own.
        queue_tokens: maximum number of tokens that wait.
        queue_seconds: maximum time that the tokens that wait may take to compute, at the speed of late.
    """

    batch_tokens: int
    queue_tokens: int
    queue_seconds: float


class Batcher:
    """Computes the inputs of requests in batches, each as soon as the one before it is done.

    The inputs that arrive while the model computes make the next batch. So a lone request is never delayed, and batches
    become larger the more requests there are.

    Args:
        model: the model.
        computing: where the model computes: an executor with one thread.
        tokenizing: where texts are tokenized.
        limits: how much it takes on.
        metrics: counts what happens.
    """

    def __init__(
        self, model: PackagedModel, computing: Executor, tokenizing: Executor, limits: Limits, metrics: Metrics
    ) -> None:
        self.model = model
        self._computing, self._tokenizing, self._limits, self._metrics = computing, tokenizing, limits, metrics
        self._waiting = Waiting(limits.batch_tokens)
        self._pending: dict[Request, asyncio.Future[None]] = {}
        self._coming = 0  # tokens of texts that are being tokenized, as far as can be told
        self._speed = 0.0  # tokens per second, a moving average
        self._users = 0
        self._arrived, self._unused = asyncio.Event(), asyncio.Event()
        self._worker = asyncio.create_task(self._work())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the batcher from being drained within the block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    def refuse_if_full(self, more: int = 0) -> None:
        """Refuse a request with so many tokens if they may not wait, or could not be computed in time.

        Raises:
            Overloaded: if it is so.
        """
        load = self._waiting.tokens + self._coming
        seconds = load / self._speed if self._speed else 0.0
        if load and (load + more > self._limits.queue_tokens or seconds > self._limits.queue_seconds):
            wait = max(1, math.ceil(seconds))
            raise Overloaded(f"{load:,} tokens wait already: try again in {wait} s", wait)

    async def logits(self, texts: Sequence[list[str]]) -> Array:
        """Compute the logits of texts. If this is cancelled, the inputs that still wait are forgotten.

        Args:
            texts: one list of sentences or two of equal length, with at least one row.

        Returns:
            Logits, float32 [rows, outputs].

        Raises:
            TooLarge: if the texts have more tokens than may ever wait.
            Overloaded: if too many tokens wait already.
        """
        with self.held():
            encodings, texts_of = await self._encoded(texts)
            request = Request(encodings, self.model.outputs)
            if request.waiting > self._limits.queue_tokens:
                most = f"{self._limits.queue_tokens:,}"
                raise TooLarge(
                    f"the texts have {request.waiting:,} tokens, and no more than {most} may wait: send fewer"
                )
            self.refuse_if_full(request.waiting)
            await self._answered(request)
            return request.logits if len(texts_of) == len(texts[0]) else pool(request.logits, texts_of)

    async def drain(self) -> None:
        """Answer all requests that have begun, and stop. There must be no new ones."""
        if self._users:
            self._unused.clear()
            await self._unused.wait()
        self._worker.cancel()
        del self._worker  # its traceback refers to this batcher, and would keep the model in memory

    async def _encoded(self, texts: Sequence[list[str]]) -> tuple[list[Encoding], Array]:
        """Tokenize texts. They count as waiting from now on, because tokenizing takes time too."""
        characters = sum(map(len, chain(*texts)))
        estimate = min(self._limits.queue_tokens, characters // CHARACTERS)
        self.refuse_if_full(estimate)
        if characters <= SHORT:
            return self.model.encode(texts)
        self._coming += estimate
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._tokenizing, self.model.encode, texts)
        finally:
            self._coming -= estimate

    async def _answered(self, request: Request) -> None:
        """Wait until all logits of a request are there."""
        answered = self._pending[request] = asyncio.get_running_loop().create_future()
        self._waiting.add(request)
        self._metrics.waiting.inc(request.waiting)
        self._arrived.set()
        try:
            await answered
        finally:
            self._metrics.waiting.dec(request.waiting)
            self._waiting.remove(request)
            del self._pending[request]

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            if batch := self._waiting.take():
                await self._answer(batch)
            else:
                self._arrived.clear()

    async def _answer(self, batch: Sequence[Input]) -> None:
        """Compute a batch, and answer the requests that are complete now."""
        loop, started = asyncio.get_running_loop(), time.perf_counter()
        encodings = [each.encoding for each in batch]
        try:
            self._metrics.taken(batch)
            logits = await loop.run_in_executor(self._computing, self.model.compute, encodings)
            for each, row in zip(batch, logits, strict=True):
                each.request.logits[each.place] = row
        except Exception as error:  # libraries raise what they like, and the next batch may be well again
            log.exception("the model has failed on a batch of %d inputs", len(batch))
            for request in {each.request for each in batch}:
                self._settle(request, error)
            return
        speed = sum(map(len, encodings)) / (time.perf_counter() - started)
        self._speed += (speed - self._speed) * (NEWEST if self._speed else 1)
        for each in batch:
            each.request.left -= 1
            if not each.request.left:
                self._settle(each.request)

    def _settle(self, request: Request, error: Exception | None = None) -> None:
        """Wake whoever waits for a request, unless it is gone."""
        answered = self._pending.get(request)
        if answered is None or answered.done():
            return
        if error is None:
            answered.set_result(None)
        else:
            answered.set_exception(error)
