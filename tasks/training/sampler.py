"""Which rows form a batch, and which of them a rank computes: a function of the data and the experiment alone."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import dropwhile

import numpy as np

from include.fields.training import Batching, Training
from include.stages import BadInput
from tasks.encoder.batching import ROWS_OF_LONGER, TIERS, Array, Batch, TokenTable, length_batches
from tasks.encoder.models import Classifier
from tasks.training.job import Job

#: The number of batches whose rows are sorted by length together. SST-2 then pads 1.9 %; with 32 it pads 6.7 %.
POOL = 128
DEPTH = 3  # micro-batches that are prepared beforehand


@dataclass(frozen=True)
class RankBatch:
    """One rank's part of a batch. If there are fewer rows than parts, a rank without rows has one of weight 0."""

    step: int  # counted from 1
    epoch: float  # passes over the training split after this step
    indices: Array  # positions of the rank's rows in the training split, [rows]
    weight: float  # of each row's loss; the sum over all rows of all ranks is then the mean of the batch
    rows: int  # of the whole batch
    parts: int  # into which it is divided, one for each rank that computes other rows

    def micro_batches(self, count: int) -> list[RankBatch]:
        """Split the rows into `count` micro-batches, or one per row if there are fewer; their losses add up.

        All ranks get the same number, as those that gather weights need: one with fewer rows repeats one with weight 0.
        """
        most = math.ceil(self.rows / self.parts)
        pieces = np.array_split(self.indices, min(count, most))
        again = dataclasses.replace(self, indices=self.indices[:1], weight=0.0)
        return [dataclasses.replace(self, indices=piece) if len(piece) else again for piece in pieces]


class Sampler:
    """Iterates over a rank's parts of all batches. The batches do not depend on the number of ranks."""

    def __init__(
        self,
        lengths: Array,  # the tokens of each training row
        terms: Array,  # what each row adds to the divisor of a batch's mean loss
        batching: Batching,
        training: Training,
        part: int,  # the number of the part of each batch that this rank computes
        parts: int,
    ) -> None:
        self._lengths, self._terms, self._batching, self._training = lengths, terms, batching, training
        self._part, self._parts = part, parts
        self._done = 0
        counts = [len(self._plan(epoch)) for epoch in range(math.ceil(training.epochs))]
        whole, rest = divmod(training.epochs, 1)
        self.steps = max(1, sum(counts[: int(whole)]) + (round(rest * counts[-1]) if rest else 0))
        self._starts = np.cumsum([0, *counts])  # steps before each epoch
        self.evaluated = evaluation_steps(counts, self.steps, training.evaluations)  # after which dev is scored

    def __iter__(self) -> Iterator[RankBatch]:
        """Iterate over the parts that are left. A step counts as done when the next one is asked for."""
        for part in self.parts(self._done):
            yield part
            self._done += 1

    def parts(self, done: int) -> Iterator[RankBatch]:
        """Iterate over the parts after `done` steps, without counting them as done."""
        while done < self.steps:
            epoch = int(np.searchsorted(self._starts, done, side="right")) - 1
            batches, first = self._plan(epoch), int(self._starts[epoch])
            for batch in batches[done - first : self.steps - first]:
                done += 1
                own = batch[self._part :: self._parts]  # every n-th row of a sorted batch: similar lengths on all ranks
                weight = 1 / float(self._terms[batch].sum()) if len(own) else 0.0
                passes = epoch + (done - first) / len(batches)
                yield RankBatch(done, passes, own if len(own) else batch[:1], weight, len(batch), self._parts)

    def state_dict(self) -> dict[str, int]:
        """Return the number of steps that are done. During a step's evaluation that step is not done yet."""
        return {"done": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue with the first step that is not done, on any number of ranks."""
        self._done = state["done"]

    def _plan(self, epoch: int) -> list[Array]:
        return epoch_batches(self._lengths, self._batching, self._training, epoch)


class Prefetch:
    """Prepares the micro-batches of a rank in their order, in a thread, while a GPU computes those before them."""

    def __init__(self, sampler: Sampler, accumulation: int, prepare: Callable[[RankBatch], Batch]) -> None:
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
        steps = self._sampler.parts(first.step - 1)
        batches = (micro_batch for batch in steps for micro_batch in batch.micro_batches(self._accumulation))
        self._coming = dropwhile(lambda batch: not _same(batch, first), batches)
        self._fill()

    def _fill(self) -> None:
        while len(self._prepared) < DEPTH and (coming := next(self._coming, None)):
            self._prepared.append((coming, self._thread.submit(self._prepare, coming)))


def _same(one: RankBatch, other: RankBatch) -> bool:
    return one.step == other.step and np.array_equal(one.indices, other.indices)


def planned_steps(job: Job) -> int:
    """Return the steps of the whole training, on any number of ranks; 0 if there are no rows, which `check` refuses."""
    lengths = training_rows(job).lengths
    terms = np.ones(len(lengths))
    return Sampler(lengths, terms, job.batching, job.training, part=0, parts=1).steps if len(lengths) else 0


def training_rows(job: Job) -> TokenTable:
    """Open the rows that a training reads: those of train, and after them the ones that only the teacher labels."""
    return TokenTable.open(job.data / "train", *([job.teacher / "unlabeled"] if job.teacher else []))


def epoch_batches(lengths: Array, batching: Batching, training: Training, epoch: int) -> list[Array]:
    """Return the batches of one epoch in the order of training, as positions of rows of nearly equal length."""
    random = np.random.default_rng([training.seed, epoch])
    order = random.permutation(len(lengths))
    if batching.kind == "static":
        return np.array_split(order, math.ceil(len(order) / training.batch_size))
    pools = np.array_split(order, math.ceil(len(order) / (POOL * _usual_rows(lengths, batching, training))))
    batches = [pool[batch] for pool in pools for batch in _divide(lengths[pool], batching, training)]
    return [batches[position] for position in random.permutation(len(batches))]


def _divide(lengths: Array, batching: Batching, training: Training) -> list[Array]:
    match batching.kind:
        case "tokens":
            return length_batches(lengths, batch_tokens=batching.batch_tokens)
        case "tiers":
            return tier_batches(lengths)
        case _:  # equally large batches, so that none is much smaller than batch_size
            by_length = np.argsort(lengths, kind="stable")
            return np.array_split(by_length, math.ceil(len(lengths) / training.batch_size))


def tier_batches(lengths: Array) -> list[Array]:
    """Return positions from the longest row to the shortest; a batch's size follows from its average length."""
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
    match batching.kind:
        case "tokens":
            return max(1, int(batching.batch_tokens / lengths.mean()))
        case "tiers":
            return TIERS[0][1]
        case _:
            return training.batch_size


def evaluation_steps(counts: list[int], steps: int, evaluations: int) -> set[int]:
    """Return the last step of each part of every epoch, which have `counts` steps, and the last of all `steps`."""
    ends = np.arange(1, evaluations + 1) / evaluations
    starts = np.cumsum([0, *counts[:-1]])
    due = np.concatenate([start + np.round(count * ends) for start, count in zip(starts, counts, strict=True)])
    return {int(step) for step in due.clip(1) if step < steps} | {steps}


def check(table: TokenTable, model: Classifier) -> None:
    """Raise BadInput if a labeled split does not fit the model."""
    labels, words, outputs = table.labels, model.encoder.config.vocab_size, model.spec.outputs
    if not len(table):
        raise BadInput(f"{table.folder} has no rows: nothing to train on, or to choose the best model by")
    if table.largest_id() >= words:
        raise BadInput(
            f"{table.folder} holds token id {table.largest_id()}, but the encoder has {words} words: "
            "it was made with another tokenizer; run the stage preprocess again"
        )
    if model.spec.kind == "multilabel" and labels.shape[1] != outputs:
        raise BadInput(
            f"{table.folder} has {labels.shape[1]} labels, but the task has {outputs}: "
            "run the stages validate and preprocess again"
        )
    if model.spec.kind == "classification" and not 0 <= labels.min() <= labels.max() < outputs:
        raise BadInput(
            f"{table.folder} has labels from {labels.min()} to {labels.max()}, but the task has {outputs} classes: "
            "run the stages validate and preprocess again"
        )


def check_batch_size(table: TokenTable, batching: Batching, batch_size: int, ranks: int) -> None:
    """Raise BadInput if there are fewer training rows than a batch of a fixed size needs."""
    if batching.kind in ("length", "static") and len(table) < batch_size:
        fitting = len(table) // ranks * ranks
        remedy = f"write {fitting} or less" if fitting else "write fewer training.ranks too"
        raise BadInput(
            f"training.batch_size is {batch_size}, but only {len(table)} rows are left to train on: {remedy}"
        )
