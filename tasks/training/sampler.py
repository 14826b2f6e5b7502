"""Which rows share a step, and which of them a rank sees: a function of the data, the experiment, and nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from include.sections import Batching, Training
from include.stages import BadInput
from tasks.encoder.batching import ROWS_OF_LONGER, TIERS, Array, TokenTable, length_batches
from tasks.encoder.models import Classifier

POOL = 128  # batches that are sorted by length together; SST-2 then pads 1.9 %, with 32 of them 6.7 %


@dataclass(frozen=True)
class Share:
    """A rank's part of a batch.

    Attributes:
        step: counted from 1.
        epoch: passes over the training split after this step.
        indices: the rank's rows. A rank for which a short batch has none takes one and gives it no weight.
        weight: of each of the rows' losses, so that the sum over all rows of all ranks is the batch's mean.
        rows: rows of the whole batch.
    """

    step: int
    epoch: float
    indices: Array
    weight: float
    rows: int

    def parts(self, count: int) -> list[Share]:
        """The share cut into `count` pieces, or as many as it has rows; their losses add up to the share's."""
        pieces = np.array_split(self.indices, min(count, len(self.indices)))
        return [dataclasses.replace(self, indices=piece) for piece in pieces]


class Sampler:
    """Iterates over a rank's shares. All ranks get as many, whatever their number, and the same batches.

    Attributes:
        steps: of the whole training, at least one.
        scored: the steps after which the dev split is scored: `evaluations` times an epoch, and after the last.
    """

    def __init__(
        self, lengths: Array, terms: Array, batching: Batching, training: Training, rank: int, world: int
    ) -> None:
        """For rows of these lengths that add these weights to the sum that a batch's mean divides by, [rows]."""
        self._lengths, self._terms, self._batching, self._training = lengths, terms, batching, training
        self._rank, self._world = rank, world
        self._done = 0
        counts = [len(self._plan(epoch)) for epoch in range(math.ceil(training.epochs))]
        whole, rest = divmod(training.epochs, 1)
        self.steps = max(1, sum(counts[: int(whole)]) + (round(rest * counts[-1]) if rest else 0))
        self._starts = np.cumsum([0, *counts])  # steps before each epoch
        self.scored = evaluation_steps(counts, self.steps, training.evaluations)

    def __iter__(self) -> Iterator[Share]:
        """The shares that are left."""
        while self._done < self.steps:
            epoch = int(np.searchsorted(self._starts, self._done, side="right")) - 1
            batches, first = self._plan(epoch), int(self._starts[epoch])
            for batch in batches[self._done - first : self.steps - first]:
                self._done += 1
                yield self._share(batch, epoch + (self._done - first) / len(batches))

    def state_dict(self) -> dict[str, int]:
        """How many steps were handed out."""
        return {"done": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on after the last step that was handed out, on any number of ranks."""
        self._done = state["done"]

    def _plan(self, epoch: int) -> list[Array]:
        return epoch_batches(self._lengths, self._batching, self._training, epoch)

    def _share(self, batch: Array, epoch: float) -> Share:
        own = batch[self._rank :: self._world]  # every n-th of a sorted batch: ranks get rows of like length
        weight = 1 / float(self._terms[batch].sum()) if len(own) else 0.0
        return Share(self._done, epoch, own if len(own) else batch[:1], weight, len(batch))


def epoch_batches(lengths: Array, batching: Batching, training: Training, epoch: int) -> list[Array]:
    """One epoch's batches, in the order that they are trained on.

    Static ones are shuffled rows. For the others a pool of shuffled rows is sorted by length and cut, so that rows of
    near-equal length meet, other ones in every epoch.
    """
    random = np.random.default_rng([training.seed, epoch])
    order = random.permutation(len(lengths))
    if batching.kind == "static":
        return np.array_split(order, math.ceil(len(order) / training.batch_size))
    pools = np.array_split(order, math.ceil(len(order) / (POOL * _usual_rows(lengths, batching, training))))
    batches = [pool[batch] for pool in pools for batch in _cut(lengths[pool], batching, training)]
    return [batches[position] for position in random.permutation(len(batches))]


def _cut(lengths: Array, batching: Batching, training: Training) -> list[Array]:
    """Positions of one pool cut into batches of near-equal length."""
    match batching.kind:
        case "tokens":
            return length_batches(lengths, batch_tokens=batching.batch_tokens)
        case "tiers":
            return tier_batches(lengths)
        case _:  # evenly, so that no batch is much smaller than batch_size
            by_length = np.argsort(lengths, kind="stable")
            return np.array_split(by_length, math.ceil(len(lengths) / training.batch_size))


def tier_batches(lengths: Array) -> list[Array]:
    """Positions from the longest row to the shortest, in batches as large as the tier of their average length."""
    order = np.argsort(-lengths, kind="stable")
    tokens = np.concatenate([[0], np.cumsum(lengths[order])])
    batches, start = [], 0
    while start < len(order):
        for longest, rows in (*TIERS, (math.inf, ROWS_OF_LONGER)):
            stop = min(start + rows, len(order))
            if tokens[stop] - tokens[start] <= longest * (stop - start):
                break
        batches.append(order[start:stop])
        start = stop
    return batches


def _usual_rows(lengths: Array, batching: Batching, training: Training) -> int:
    """Rows of a batch, about."""
    match batching.kind:
        case "tokens":
            return max(1, int(batching.batch_tokens / lengths.mean()))
        case "tiers":
            return TIERS[0][1]
        case _:
            return training.batch_size


def evaluation_steps(counts: list[int], steps: int, evaluations: int) -> set[int]:
    """The steps that end an `evaluations`-th part of an epoch, for epochs of `counts` steps, and the last step."""
    ends = np.arange(1, evaluations + 1) / evaluations
    starts = np.cumsum([0, *counts[:-1]])
    due = np.concatenate([start + np.round(count * ends) for start, count in zip(starts, counts, strict=True)])
    return {int(step) for step in due.clip(1) if step < steps} | {steps}


def check(table: TokenTable, model: Classifier) -> None:
    """Raise BadInput when a labelled split does not fit the model."""
    labels, words, outputs = table.labels, model.encoder.config.vocab_size, model.spec.outputs
    if not len(table):
        raise BadInput(f"{table.folder} has no rows: nothing to train on, or to choose the best model by")
    if table.largest_id() >= words:
        raise BadInput(
            f"{table.folder} holds token id {table.largest_id()}, but the encoder has {words} words: "
            "it was made with another tokenizer; run the stage preprocess again"
        )
    if model.spec.kind == "classification" and not 0 <= labels.min() <= labels.max() < outputs:
        raise BadInput(
            f"{table.folder} has labels from {labels.min()} to {labels.max()}, but the task has {outputs} classes: "
            "run the stages validate and preprocess again"
        )


def check_batch_size(table: TokenTable, batching: Batching, batch_size: int, ranks: int) -> None:
    """Raise BadInput when there are fewer rows than a batch of a fixed size has."""
    if batching.kind in ("length", "static") and len(table) < batch_size:
        fitting = len(table) // ranks * ranks
        remedy = f"write {fitting} or less" if fitting else "write fewer training.ranks too"
        raise BadInput(
            f"training.batch_size is {batch_size}, but only {len(table)} rows are left to train on: {remedy}"
        )
