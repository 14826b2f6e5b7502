from __future__ import annotations

import threading

import numpy as np
import torch

from include.fields.training import Batching, Training
from tasks.encoder.batching import Batch
from tasks.training.sampler import Prefetch, RankBatch, Sampler

ACCUMULATION = 2


def sampler() -> Sampler:
    lengths = np.arange(3, 43)
    return Sampler(lengths, np.ones(40), Batching(), Training(batch_size=8, epochs=2), part=0, parts=1)


class Prepared:
    """Makes batches that hold their rows' positions, and knows in which threads."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def __call__(self, batch: RankBatch) -> Batch:
        self.threads.add(threading.current_thread().name)
        rows = torch.from_numpy(batch.indices)
        return Batch(rows, rows, rows, rows)


def follow(batches: Sampler, prefetch: Prefetch, steps: int) -> None:
    """Take steps, and check that every micro-batch has its own rows."""
    for batch, _ in zip(batches, range(steps), strict=False):
        for micro_batch in batch.micro_batches(ACCUMULATION):
            assert np.array_equal(prefetch(micro_batch).input_ids.numpy(), micro_batch.indices)


def test_every_micro_batch_is_prepared_in_the_thread() -> None:
    batches, prepared = sampler(), Prepared()
    follow(batches, Prefetch(batches, ACCUMULATION, prepared), batches.steps)
    assert len(prepared.threads) == 1 and threading.main_thread().name not in prepared.threads


def test_what_is_prepared_beforehand_does_not_count_as_done() -> None:
    batches = sampler()
    follow(batches, Prefetch(batches, ACCUMULATION, Prepared()), steps=3)
    assert batches.state_dict() == {"done": 3}


def test_it_follows_the_sampler_to_another_step() -> None:
    batches = sampler()
    prefetch = Prefetch(batches, ACCUMULATION, Prepared())
    for done in (0, 7, 2):
        batches.load_state_dict({"done": done})
        follow(batches, prefetch, steps=2)
