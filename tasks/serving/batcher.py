"""Micro-batches: inputs of many requests that are computed together, without any of them waiting for a clock."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager

from tokenizers import Encoding

from include.fields.labeling import Serving
from tasks.encoder.windows import pool
from tasks.inference.packaged_model import Array, PackagedModel
from tasks.serving.metrics import Metrics
from tasks.serving.refusal import Overloaded, TooLarge
from tasks.serving.waiting import Input, Request, Shares, Waiting

log = logging.getLogger(__name__)

#: The number of characters per token by which texts are estimated until they are tokenized. In the movie reviews it is
#: 4.2.
CHARACTERS = 4
#: Texts of no more characters are tokenized in the event loop, because waking another thread costs more.
SHORT = 2_000
#: The share of the time until the deadline that a request may take by the speed of late, if no other one comes.
MARGIN = 0.5
#: The weight of the last batch in the moving average of the speed. When many requests come at once, the model becomes
#: slower, and what is admitted at the old speed would all be too late.
NEWEST = 0.3


class Batcher:
    """Computes the inputs of requests in batches, one in each thread, and each as soon as the one before it is done.

    The inputs that arrive while all threads compute make the next batches. So a lone request is never delayed, and
    batches become larger the more requests there are.
    """

    def __init__(
        self,
        model: PackagedModel,
        computing: Executor,
        tokenizing: Executor,
        threads: int,
        serving: Serving,
        metrics: Metrics,
    ) -> None:
        self.model = model
        self._computing, self._tokenizing, self._metrics = computing, tokenizing, metrics
        self._shares = Shares(serving.queue_tokens)  # also of texts that are being tokenized, as far as can be told
        self._waiting = Waiting(serving.batch_tokens, self._shares)
        self._pending: dict[Request, asyncio.Future[None]] = {}
        self._large = serving.batch_tokens // 2
        self._threads = self._idle = threads
        self._busy = 0  # tokens of the batches that are being computed
        self._speed = 0.0  # tokens per second of all threads, a moving average
        self._users = 0
        self._arrived, self._unused = asyncio.Event(), asyncio.Event()
        self._workers = [asyncio.create_task(self._work()) for _ in range(threads)]

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

    def refuse_if_full(self, tokens: int, client: str, deadline: float) -> None:
        """Raise Overloaded if a request of about this many tokens may not wait, or could not be computed in time."""
        load, speed = self._shares.taken + self._busy, self._speed
        left = deadline - asyncio.get_running_loop().time()
        in_time = not speed or (self._busy + self._waiting.ahead(client, tokens)) / speed <= MARGIN * left
        if load and not (in_time and self._shares.has_room(client, tokens)):
            wait = math.ceil(load / speed) if speed else 1
            raise Overloaded(f"{load:,} tokens wait already: try again in {wait} s", wait)

    async def logits(self, texts: Sequence[list[str]], client: str = "", deadline: float = math.inf) -> Array:
        """Return the logits, float32 [rows, outputs], of a list of sentences, or of two lists of equal length.

        If this is cancelled, the inputs that still wait are forgotten.
        """
        with self.held():
            encodings, texts_of = await self._encoded(texts, client, deadline)
            request, most = Request(encodings, self.model.outputs, client), self._shares.largest
            if request.waiting > most:
                raise TooLarge(f"the texts have {request.waiting:,} tokens: send no more than {most:,} at a time")
            self.refuse_if_full(request.waiting, client, deadline)
            await self._answered(request)
            return request.logits if len(texts_of) == len(texts[0]) else pool(request.logits, texts_of)

    async def drain(self) -> None:
        """Answer all requests that have begun, and stop. There must be no new ones."""
        if self._users:
            self._unused.clear()
            await self._unused.wait()
        for worker in self._workers:
            worker.cancel()
        del self._workers  # their tracebacks refer to this batcher, and would keep the model in memory

    async def _encoded(self, texts: Sequence[list[str]], client: str, deadline: float) -> tuple[list[Encoding], Array]:
        """Tokenize texts, which count as waiting from now on, because tokenizing takes time as well."""
        rows = [sum(map(len, row)) for row in zip(*texts, strict=True)]
        # What is truncated does not count: it is not computed, and seldom tokenized.
        most = CHARACTERS * self.model.max_length if self.model.stride is None else math.inf
        estimate = min(self._shares.largest, int(sum(min(row, most) for row in rows)) // CHARACTERS)
        self.refuse_if_full(estimate, client, deadline)
        if sum(rows) <= SHORT:
            return self.model.encode(texts)
        with self._waiting.coming(client, estimate):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._tokenizing, self.model.encode, texts)

    async def _answered(self, request: Request) -> None:
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
            try:
                if batch := self._waiting.take(self._idle):
                    await self._answer(batch)
            except Exception as error:  # a bug here: without a worker, no later request would be answered
                log.exception("the queue has failed, and with it %d requests", len(self._pending))
                batch = []
                for request in self._pending:
                    self._settle(request, error)
            if not batch:
                self._arrived.clear()

    async def _answer(self, batch: Sequence[Input]) -> None:
        loop, started = asyncio.get_running_loop(), time.perf_counter()
        encodings, is_last = [each.encoding for each in batch], not self._shares.taken
        tokens = sum(map(len, encodings))
        self._busy += tokens
        self._idle -= 1
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
        finally:
            self._busy -= tokens
            self._idle += 1
        speed = self._threads * tokens / (time.perf_counter() - started)
        is_small = is_last and tokens < self._large  # which makes it slower, and does not say how fast others are
        if not is_small or 0 < self._speed < speed:
            self._speed += (speed - self._speed) * (NEWEST if self._speed else 1)
        for each in batch:
            each.request.left -= 1
            if not each.request.left:
                self._settle(each.request)

    def _settle(self, request: Request, error: Exception | None = None) -> None:
        """End the wait for a request, unless it is gone."""
        answered = self._pending.get(request)
        if answered is None or answered.done():
            return
        if error is None:
            answered.set_result(None)
        else:
            answered.set_exception(error)
