"""The way of the validated rows to token ids: select, clean, augment and tokenize them.

Each partition is made by itself, from rows of validate's tables. Which ones these are follows from their numbers in
Parquet's metadata, or from the rows that were selected, so no text passes through Spark's driver or a JVM.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.experiment import Experiment
from include.glue import SPLITS
from include.stages import BadInput
from tasks.stages.pipeline.preprocess.augment import augmentation, shifts
from tasks.stages.pipeline.preprocess.selection import Mask, select
from tasks.stages.pipeline.preprocess.slices import Slice, cut
from tasks.stages.pipeline.preprocess.table import Table, share_table
from tasks.stages.pipeline.preprocess.tokenize import COUNTS, TokenizeSlices
from tasks.workers import Workers, open_workers

log = logging.getLogger(__name__)


def tokenize_splits(
    experiment: Experiment, validated: Path, tokenizer: Path, output: Path
) -> dict[str, dict[str, int]]:
    """Write a folder of token ids for each split, and return its counts: COUNTS and "partitions"."""
    options = experiment.preprocessing
    with open_workers(experiment, "preprocess", _rows(validated)) as workers:
        staged = workers.staged
        slices: dict[str, list[Slice]] = {}
        for name, (table, chosen) in _select_rows(workers, experiment, validated).items():
            (output / name).mkdir()
            copies = shifts(options.augment if name == "train" else ())
            slices[name] = cut(table, chosen, copies, staged.address_of(output / name))
        augment = augmentation(experiment, tokenizer, staged) if options.augment else None
        every = tuple(each for own in slices.values() for each in own)
        work = TokenizeSlices(every, experiment.task, options, staged.share(tokenizer), augment)
        totals = np.array(workers.map(work, len(every)))
        for name in slices:
            staged.collect(output / name)
    ends = np.cumsum([len(own) for own in slices.values()]).tolist()
    counts = {}
    for (name, own), end in zip(slices.items(), ends, strict=True):
        sums = totals[end - len(own) : end].sum(0).tolist()
        counts[name] = dict(zip(COUNTS, sums, strict=True)) | {"partitions": len(own)}
        _log(name, counts[name])
    return counts


def _select_rows(workers: Workers, experiment: Experiment, validated: Path) -> dict[str, tuple[Table, Mask | None]]:
    """Return the table of each split, and which of its rows the experiment selects; None if all are.

    Raise BadInput if a split has no rows. The number of a dev row that is split again becomes row + 1 + the highest row
    of train, so that `row` stays unique.
    """
    options = experiment.preprocessing
    tables = {name: share_table(workers.staged, validated / f"{name}.parquet") for name in SPLITS}
    splits: dict[str, tuple[Table, Mask | None]] = {name: (table, None) for name, table in tables.items()}
    if options.resplit or options.sample < 1:
        rows = tables["train"]
        if options.resplit:
            rows = rows.followed_by(tables["dev"], _next_row(validated / "train.parquet"))
        masks = select(workers, rows, tables["test"], experiment.task, options)
        splits |= {name: (rows, mask) for name, mask in masks.items()}
    if not len(tables["test"]):  # there is no test file
        del splits["test"]
    for name, (table, mask) in splits.items():
        if not (len(table) if mask is None else mask.any()):
            raise BadInput(f"no rows are left for {name}: add more data, or turn preprocessing.resplit off")
    return splits


def _rows(validated: Path) -> int:
    files = (file for name in SPLITS for file in (validated / f"{name}.parquet").glob("part-*.parquet"))
    return sum(pq.read_metadata(file).num_rows for file in files)


def _next_row(folder: Path) -> int:
    highest = pc.max(pq.read_table(folder, columns=["row"])["row"]).as_py()
    return 0 if highest is None else int(highest) + 1


def _log(split: str, counts: dict[str, int]) -> None:
    log.info("%s: %d rows, %d tokens, %d partitions", split, counts["rows"], counts["tokens"], counts["partitions"])
    if counts["empty"]:
        log.warning("%s: %d rows have an empty sentence after cleaning; they are kept", split, counts["empty"])
