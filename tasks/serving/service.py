"""The service without HTTP: the model that answers now, and how another one takes its place."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from include.sections import Serving
from tasks.serving.batcher import Batcher, Limits
from tasks.serving.metrics import Metrics
from tasks.serving.refusal import NotReady, TooLarge, TooSlow
from tasks.serving.served_model import ServedModel

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answers:
    """The answers to the texts of a request, all of them from one model.

    Attributes:
        model: the model.
        columns: lists with a value for each text: see PackagedModel.answers.
    """

    model: ServedModel
    columns: dict[str, list[Any]]


class Service:
    """Answers with the model in use. It is made and used within a running event loop.

    Args:
        serving: the experiment's serving section.
        metrics: counts what happens.
    """

    def __init__(self, serving: Serving, metrics: Metrics) -> None:
        self.serving, self.metrics = serving, metrics
        # One batch is computed at a time, also while two models are in use, because it has all threads.
        self._computing = ThreadPoolExecutor(1, "model")
        self._tokenizing = ThreadPoolExecutor(1, "tokenizer")
        self._used: tuple[ServedModel, Batcher] | None = None
        self._retired: set[asyncio.Task[None]] = set()

    @property
    def revision(self) -> str:
        """The git revision of the code; "" if it is not known."""
        return os.environ.get("SPARK_BERT_REVISION", "")

    @property
    def model(self) -> ServedModel:
        """The model in use.

        Raises:
            NotReady: if there is none yet.
        """
        return self._in_use()[0]

    async def use(self, model: ServedModel) -> None:
        """Warm a model between the batches of the one in use, and answer with it from now on.

        Requests that have begun are answered by the model that they began with.
        """
        loop = asyncio.get_running_loop()
        for shape in model.shapes(self.serving.batch_tokens):
            await loop.run_in_executor(self._computing, model.warm, shape)
        limits = Limits(self.serving.batch_tokens, self.serving.queue_tokens)
        before = self._used
        batcher = Batcher(model.package, self._computing, self._tokenizing, limits, self.metrics)
        self._used = model, batcher
        self.metrics.serves(model.name, model.version, model.form)
        log.info("version %s of %s answers from now on", model.version, model.name)
        if before is not None:
            task = asyncio.create_task(before[1].drain())
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    async def answer(self, texts: Sequence[list[str]]) -> Answers:
        """Answer a request.

        Args:
            texts: for each column of the model, the sentences of all rows.

        Raises:
            Refusal: if it cannot be answered now, or not in time.
        """
        model, batcher = self._in_use()
        if len(texts[0]) > self.serving.max_rows:
            raise TooLarge(f"there are {len(texts[0]):,} texts: send no more than {self.serving.max_rows:,} at a time")
        try:
            async with asyncio.timeout(self.serving.deadline):
                logits = await batcher.logits(texts)
        except TimeoutError as error:
            raise TooSlow(f"there is no answer after {self.serving.deadline:g} s: try again later") from error
        columns = model.package.answers(logits)
        self.metrics.answered(model.version, columns)
        return Answers(model, columns)

    async def close(self) -> None:
        """Answer what waits, and stop."""
        if self._used is not None:
            await self._used[1].drain()
        await asyncio.gather(*self._retired)
        for executor in (self._tokenizing, self._computing):
            executor.shutdown()

    def _in_use(self) -> tuple[ServedModel, Batcher]:
        if self._used is None:
            raise NotReady("no model is loaded yet: try again in a few seconds")
        return self._used
