"""Select rows: sample them, and split them again.

Workers read only the strata and keys of rows; texts are not moved. Rows are selected by a seeded hash, so the selection
depends on the seed and the data only, not on the partitioning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from include.fields.data import Preprocessing
from include.glue import Task
from tasks.encoder.windows import Array
from tasks.sources.normalize import overlap_key
from tasks.stages.pipeline.preprocess.table import Table
from tasks.workers import Workers

SCORE_BINS = 10
_ROWS = 100_000  # whose keys are read at once
TRAIN, DEV, HELDOUT, DROPPED = range(4)
#: The constants of xxHash64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).
_PRIMES = tuple(
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )
)  # fmt: skip
_SPARKS_SEED = 42

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Keys:
    """What the selection of rows depends on.

    Attributes:
        stratum: see `strata`, [rows].
        row: the numbers of the rows, int64 [rows].
        text: the overlap_key of their sentences, int64 [rows]; empty unless rows are split again.
    """

    stratum: Array
    row: Array
    text: Array


def select(workers: Workers, rows: Table, test: Table, task: Task, options: Preprocessing) -> dict[str, Mask]:
    """Return which rows of a table belong to train and, if they are split again, to dev and heldout, [rows] each."""
    keys = _keys(workers, rows, task, options.resplit)
    found = np.full(len(rows), TRAIN)
    if options.resplit:
        found = resplit(keys, _keys(workers, test, task, True).text, options.seed)
    if options.sample < 1:
        found = sample(keys, found, options.sample, options.seed)
    splits = {"train": TRAIN, "dev": DEV, "heldout": HELDOUT} if options.resplit else {"train": TRAIN}
    return {name: found == split for name, split in splits.items()}


def strata(labels: pa.Array, task: Task) -> Array:
    """Return the stratum of rows: the class, or the tenth of the score range that contains the score, int32 [rows]."""
    if task.kind == "multilabel" or labels.null_count:  # most sets of labels would have too few rows; test has none
        return np.zeros(len(labels), np.int32)
    values = labels.to_numpy(zero_copy_only=False)
    if task.score_range is None:
        classes: Array = values.astype(np.int32)
        return classes
    low, high = task.score_range
    tenths: Array = np.floor((values - low) / (high - low) * SCORE_BINS).astype(np.int32)
    return np.minimum(tenths, SCORE_BINS - 1)  # the highest score belongs to the last tenth


def sample(keys: Keys, found: Array, share: float, seed: int) -> Array:
    """Drop all but a share of each stratum of train, rounded to whole rows. Each stratum keeps at least one row."""
    train = np.flatnonzero(found == TRAIN)
    stratum = keys.stratum[train]
    order = np.lexsort((keys.row[train], seeded_hash(keys.row[train], seed), stratum))
    starts, sizes = _groups(stratum[order])
    ranks = np.arange(len(order)) - np.repeat(starts, sizes)
    wanted = np.repeat(np.maximum(1, np.floor(sizes * share + 0.5)), sizes)
    kept = found.copy()
    kept[train[order[ranks >= wanted]]] = DROPPED
    return kept


def resplit(keys: Keys, test: Array, seed: int) -> Array:
    """Split rows 8:1:1 within each stratum into train, dev and heldout. Return the split of each row, [rows].

    Rows whose text also occurs in test, of which the keys are given, are dropped: validate allows them in dev, but they
    could end up in train here. Equal texts of one stratum stay in one split, so the proportions are those of different
    texts.
    """
    found = np.full(len(keys.row), DROPPED)
    rest = np.flatnonzero(~np.isin(keys.text, test))
    stratum, hashes = keys.stratum[rest], seeded_hash(keys.text[rest], seed)
    order = np.lexsort((hashes, stratum))
    starts, sizes = _groups(stratum[order])
    is_new = np.append(True, np.diff(hashes[order]) != 0)[: len(order)]
    is_new[starts] = True
    texts = np.cumsum(is_new)  # different ones so far
    ranks = texts - np.repeat(texts[starts], sizes)
    tenths = np.repeat((texts[starts + sizes - 1] - texts[starts] + 1 + 5) // 10, sizes)  # rounded
    found[rest[order]] = np.select([ranks < tenths, ranks < 2 * tenths], [HELDOUT, DEV], TRAIN)
    return found


def seeded_hash(values: Array, seed: int) -> Array:
    """Return xxhash64(seed, value) of Spark, for integers, int64 [n]. The seed is less than 2**31."""
    first, second, third, fourth, fifth = _PRIMES
    start = np.array([_SPARKS_SEED], np.uint64) + fifth + np.uint64(4)
    start = _rotated(start ^ np.array([seed], np.uint64) * first, 23) * second + third
    hashes = _mixed(start) + fifth + np.uint64(8)
    hashes = hashes ^ _rotated(values.astype(np.int64).view(np.uint64) * second, 31) * first
    return _mixed(_rotated(hashes, 27) * first + fourth).view(np.int64)


def _rotated(values: Array, bits: int) -> Array:
    rotated: Array = values << np.uint64(bits) | values >> np.uint64(64 - bits)
    return rotated


def _mixed(values: Array) -> Array:
    values = (values ^ values >> np.uint64(33)) * _PRIMES[1]
    values = (values ^ values >> np.uint64(29)) * _PRIMES[2]
    mixed: Array = values ^ values >> np.uint64(32)
    return mixed


def _groups(values: Array) -> tuple[Array, Array]:
    """Return the first positions and the lengths of the runs of equal values, [runs] each."""
    _, starts, sizes = np.unique(values, return_index=True, return_counts=True)
    return starts, sizes


def _keys(workers: Workers, table: Table, task: Task, with_texts: bool) -> Keys:
    parts = workers.map(_ReadKeys(table, task, with_texts), max(1, -(-len(table) // _ROWS)))
    return Keys(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("stratum", "row", "text")))


@dataclass(frozen=True)
class _ReadKeys:
    """Reads the keys of _ROWS rows."""

    table: Table
    task: Task
    with_texts: bool

    def __call__(self, number: int) -> Keys:
        start = number * _ROWS
        sentences = self.task.sentence_columns if self.with_texts else ()
        stratum, row, text = ([np.zeros(0, kind)] for kind in (np.int32, np.int64, np.int64))
        for batch in self.table.read(start, start + _ROWS, ("row", "label", *sentences)):
            stratum.append(strata(batch.column("label"), self.task))
            row.append(batch.column("row").to_numpy())
            if sentences:
                texts = zip(*(batch.column(name).to_pylist() for name in sentences), strict=True)
                text.append(np.fromiter(map(overlap_key, texts), np.int64, len(batch)))
        return Keys(*(np.concatenate(column) for column in (stratum, row, text)))
