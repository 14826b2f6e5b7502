"""Batches that a thread prepares while a GPU computes those before them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from tasks.encoder.batching import Batch
from tasks.training.sampler import RankBatch, Sampler

DEPTH = 3  # micro-batches that are prepared beforehand


class Prefetch:
    """Prepares the micro-batches of a rank in their order, some before they are asked for."""

    def __init__(self, sampler: Sampler, accumulation: int, prepare: Callable[[RankBatch], Batch]) -> None:
        """Prepare batches.

        Args:
            sampler: what the loop iterates over.
            accumulation: the number of micro-batches of a step.
            prepare: returns the rows of a micro-batch; called in another thread.
        """
        self._sampler, self._accumulation, self._prepare = sampler, accumulation, prepare
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._coming: Iterator[RankBatch] = iter(())
        self._prepared: deque[tuple[RankBatch, Future[Batch]]] = deque()

    def __call__(self, wanted: RankBatch) -> Batch:
        """Return the rows of a micro-batch. If it is not the next one, the order begins again there."""
        if not self._prepared or not _same(self._prepared[0][0], wanted):
            self._begin(wanted)
        _, batch = self._prepared.popleft()
        self._fill()
        return batch.result()

    def _begin(self, first: RankBatch) -> None:
        self._prepared.clear()
        self._coming = (
            micro_batch
            for batch in self._sampler.parts(first.step - 1)
            for micro_batch in batch.micro_batches(self._accumulation)
        )
        self._coming = _from(first, self._coming)
        self._fill()

    def _fill(self) -> None:
        while len(self._prepared) < DEPTH and (coming := next(self._coming, None)):
            self._prepared.append((coming, self._thread.submit(self._prepare, coming)))


def _from(first: RankBatch, batches: Iterator[RankBatch]) -> Iterator[RankBatch]:
    """Leave out what comes before a micro-batch."""
    for batch in batches:
        if _same(batch, first):
            yield batch
            break
    yield from batches


def _same(one: RankBatch, other: RankBatch) -> bool:
    return one.step == other.step and np.array_equal(one.indices, other.indices)
