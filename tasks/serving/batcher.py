"""Micro-batches: inputs of many requests that are computed together, without any of them waiting for a clock."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from tasks.encoder.windows import pool
from tasks.inference.packaged_model import Array, PackagedModel
from tasks.serving.metrics import Metrics
from tasks.serving.refusal import Overloaded, TooLarge
from tasks.serving.waiting import Input, Request, Waiting

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """How much the batcher takes on.

    Attributes:
        batch_tokens: maximum number of tokens per batch, including padding. A longer input is a batch of its own.
        queue_tokens: maximum number of tokens that wait.
    """

    batch_tokens: int
    queue_tokens: int


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
        self._arrived, self._idle, self._active = asyncio.Event(), asyncio.Event(), 0
        self._speed = 0.0  # tokens per second
        self._worker = asyncio.create_task(self._work())

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
        self._refuse_if_full()
        self._active += 1
        try:
            return await self._logits(texts)
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()

    async def _logits(self, texts: Sequence[list[str]]) -> Array:
        loop = asyncio.get_running_loop()
        encodings, texts_of = await loop.run_in_executor(self._tokenizing, self.model.encode, texts)
        request = Request(encodings, self.model.outputs)
        self._refuse_if_full(request.waiting)
        answered = self._pending[request] = loop.create_future()
        self._waiting.add(request)
        self._arrived.set()
        try:
            await answered
        finally:
            self._waiting.remove(request)
            del self._pending[request]
        return pool(request.logits, texts_of)

    async def drain(self) -> None:
        """Answer all requests that have begun, and stop. There must be no new ones."""
        if self._active:
            self._idle.clear()
            await self._idle.wait()
        self._worker.cancel()

    def _refuse_if_full(self, more: int = 1) -> None:
        """Raise a refusal if so many more tokens may not wait."""
        most, waiting = self._limits.queue_tokens, self._waiting.tokens
        if more > most:
            raise TooLarge(f"the texts have {more:,} tokens, and no more than {most:,} may wait: send fewer at a time")
        if waiting + more > most:
            seconds = max(1, math.ceil(waiting / self._speed)) if self._speed else 1
            raise Overloaded(f"{waiting:,} tokens wait already: try again in {seconds} s", seconds)

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            if batch := self._waiting.take():
                await self._answer(batch)
            else:
                self._arrived.clear()

    async def _answer(self, batch: Sequence[Input]) -> None:
        """Compute a batch, and answer the requests that are complete now."""
        self._metrics.taken(batch, self._waiting.tokens)
        loop, started = asyncio.get_running_loop(), time.perf_counter()
        encodings = [each.encoding for each in batch]
        try:
            logits = await loop.run_in_executor(self._computing, self.model.compute, encodings)
        except Exception as error:  # libraries raise what they like, and the next batch may be well again
            log.exception("the model has failed on a batch of %d inputs", len(batch))
            for request in {each.request for each in batch}:
                self._settle(request, error)
            return
        self._speed = sum(map(len, encodings)) / (time.perf_counter() - started)
        for each, row in zip(batch, logits, strict=True):
            each.request.logits[each.place] = row
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
