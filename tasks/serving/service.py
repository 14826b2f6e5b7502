"""The service without HTTP: the models that answer now, and how others take their places."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import math
import random
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from include.answers import EXPLANATION, SAME_SCORE
from include.fields.labeling import Serving
from tasks.inference.capacity import compared
from tasks.serving.batcher import Batcher
from tasks.serving.explaining import Explained
from tasks.serving.metrics import Metrics
from tasks.serving.refusal import NotReady, Refusal, TooLarge, TooSlow, Unknown
from tasks.serving.served_model import ServedModel, threads_of

log = logging.getLogger(__name__)

#: After each batch that warms a model, the champion has the processor for itself for this many times as long.
REST = 3


@dataclass(frozen=True)
class Lane:
    """A model and the batches in which it computes."""

    model: ServedModel
    batcher: Batcher


@dataclass(frozen=True)
class Answers:
    """The answers to the texts of a request from one model, with a value for each text: see PackagedModel.answers.

    They also have the column EXPLANATION if the request asks for it.
    """

    model: ServedModel
    columns: dict[str, list[Any]]


class Service:
    """Answers with the champion, and with the challenger as far as the settings say. It lives in an event loop."""

    def __init__(self, serving: Serving, metrics: Metrics) -> None:
        self.serving, self.metrics = serving, metrics
        # Each thread computes a batch of its own, whichever model computes it: no thread waits for the others.
        self._threads = threads_of(serving.threads)
        self._computing = ThreadPoolExecutor(self._threads, "model")
        self._tokenizing = ThreadPoolExecutor(1, "tokenizer")
        self.obstacle = "try again in a few seconds"  # why there is no model yet, for messages
        self._champion: Lane | None = None
        self._challenger: Lane | None = None
        self._aside: set[asyncio.Task[None]] = set()

    async def use(self, model: ServedModel) -> None:
        """Warm a model between the batches of others, and answer the requests that begin from now on with it."""
        lane = await self._opened(model)
        before, self._champion = self._champion, lane
        if before is None:
            # What is loaded by now stays. Looking for garbage there would delay answers by a tenth of a second.
            gc.collect()
            gc.freeze()
        self.metrics.serves(model.name, model.version, model.form)
        log.info("version %s of %s answers from now on", model.version, model.name)
        _log_capacity(model, before)
        self._retire(before)

    async def challenge(self, model: ServedModel) -> None:
        """Try a model out next to the champion from now on."""
        lane = await self._opened(model)
        self.dismiss()
        self._challenger = lane
        log.info("version %s of %s is tried out from now on", model.version, model.name)
        _log_capacity(model, self._champion)

    def dismiss(self) -> None:
        """Stop trying a model out."""
        if self._challenger is not None:
            before, self._challenger = self._challenger, None
            log.info("the model is no longer tried out")
            self._retire(before)

    def lane(self, identity: str = "", name: str = "", version: str = "") -> Lane:
        """Return what answers a request that asks for a name and a version, "" for any.

        `serving.canary` chooses by the id of the request, so the same id gets the same model.
        """
        champion, challenger = self._champion, self._challenger
        if champion is None:
            raise NotReady(f"no model is loaded yet: {self.obstacle}", math.ceil(self.serving.poll))
        lanes = [champion] if challenger is None else [champion, challenger]
        found = [lane for lane in lanes if name in ("", lane.model.name) and version in ("", lane.model.version)]
        if not found:
            asked = f"version {version} of {name}" if version else name
            there = ", ".join(lane.model.version for lane in lanes)
            raise Unknown(f"there is no {asked}: {champion.model.name} has {there}")
        is_canary = len(found) > 1 and share(identity) < self.serving.canary
        return found[-1] if is_canary else found[0]

    async def answer(
        self, lane: Lane, texts: Sequence[list[str]], client: str, deadline: float, explain: bool = False
    ) -> Answers:
        """Answer a request, given as the texts of all rows for each column of the model, or raise Refusal."""
        if len(texts[0]) > self.serving.max_rows:
            raise TooLarge(f"there are {len(texts[0]):,} texts: send no more than {self.serving.max_rows:,} at a time")
        started = time.perf_counter()
        try:
            async with asyncio.timeout_at(deadline):
                explained = await self._explained(lane, texts) if explain else None
                asked = texts if explained is None else explained.texts()
                logits = await lane.batcher.logits(asked, client, deadline)
        except TimeoutError as error:
            raise TooSlow(f"there is no answer after {self.serving.deadline:g} s: try again later") from error
        answers = Answers(lane.model, lane.model.package.answers(logits[: len(texts[0])]))
        if explained is not None:
            answers.columns[EXPLANATION] = explained.explanations(lane.model.package, logits)
        self.metrics.answered(lane.model.version, answers.columns, time.perf_counter() - started)
        other = self._challenger
        # Not chosen by the id: a client that always sends the same one would be compared always or never.
        if other is not None and lane is self._champion and random.random() < self.serving.shadow:
            self._start(self._compare(other, texts, answers))
        return answers

    async def _explained(self, lane: Lane, texts: Sequence[list[str]]) -> Explained:
        loop, package = asyncio.get_running_loop(), lane.model.package
        return await loop.run_in_executor(self._tokenizing, Explained.of, texts, package, self.serving)

    async def close(self) -> None:
        """Answer what waits, and stop."""
        self._retire(self._champion)
        self._retire(self._challenger)
        await asyncio.gather(*self._aside, return_exceptions=True)
        for executor in (self._tokenizing, self._computing):
            executor.shutdown()

    async def _opened(self, model: ServedModel) -> Lane:
        loop, shapes = asyncio.get_running_loop(), model.shapes(self.serving.batch_tokens)
        log.info("warming %d shapes of version %s", len(shapes), model.version)
        for shape in shapes:
            began = loop.time()
            await loop.run_in_executor(self._computing, model.warm, shape)
            if self._champion is not None:
                await asyncio.sleep(REST * (loop.time() - began))
        batcher = Batcher(model.package, self._computing, self._tokenizing, self._threads, self.serving, self.metrics)
        return Lane(model, batcher)

    async def _compare(self, challenger: Lane, texts: Sequence[list[str]], answers: Answers) -> None:
        version, started = challenger.model.version, time.perf_counter()
        deadline = asyncio.get_running_loop().time() + self.serving.deadline
        try:
            async with asyncio.timeout_at(deadline):
                logits = await challenger.batcher.logits(texts, deadline=deadline)
        except (Refusal, TimeoutError):
            self.metrics.shadows.labels(version, "skipped").inc(len(texts[0]))
            return
        self.metrics.models.labels(version).observe(time.perf_counter() - started)
        other = challenger.model.package.answers(logits)
        for same in agreement(answers, other):
            self.metrics.shadows.labels(version, "same" if same else "other").inc()

    def _retire(self, lane: Lane | None) -> None:
        if lane is not None:
            self._start(lane.batcher.drain())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task, and keep it from being garbage."""
        task = asyncio.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)


def _log_capacity(model: ServedModel, other: Lane | None) -> None:
    """Say how many more or fewer texts are answered with a model than with another one."""
    if other is not None:
        names = f"version {model.version}", f"version {other.model.version}"
        if words := compared(model.capacity, names[0], other.model.capacity, names[1]):
            log.info("%s", words)


def share(identity: str) -> float:
    """Return a number from 0 to 1, evenly distributed over ids, and always the same for an id."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4]) / 2**32


def agreement(answers: Answers, others: Mapping[str, list[Any]]) -> list[bool]:
    """Return for each text whether another model gives the same label, the same labels, or nearly the same score."""
    for name in ("label", "labels"):
        if name in answers.columns:
            return [one == other for one, other in zip(answers.columns[name], others[name], strict=True)]
    low, high = answers.model.package.score_range or (0, 1)
    scores = zip(answers.columns["score"], others["score"], strict=True)
    return [abs(one - other) <= SAME_SCORE * (high - low) for one, other in scores]
