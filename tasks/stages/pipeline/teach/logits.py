"""The logits of a teacher: workers compute them in parts, one for each file of token ids, which are then joined."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.experiment import Experiment
from include.fields.results import Prediction
from include.stages import BadInput
from tasks.assets import encoder_folder
from tasks.encoder import tokens
from tasks.encoder.batching import Array, TokenTable
from tasks.inference.chosen_model import Model
from tasks.inference.labeler import Labeler
from tasks.inference.parts import part_file, write_parts
from tasks.stages.pipeline.teach.unlabeled import UNLABELED
from tasks.staging import below, fetched
from tasks.workers import open_workers

log = logging.getLogger(__name__)

#: The files of token ids of each split, in their order.
Splits = Mapping[str, list[Path]]


def splits_of(splits: Path, kept: Path) -> Splits:
    """Return the files of train, dev and, if there are some, the unlabeled rows."""
    folders = {"train": splits / "train", "dev": splits / "dev", UNLABELED: kept / UNLABELED}
    found = {name: sorted(folder.glob("part-*.arrow")) for name, folder in folders.items()}
    return {name: files for name, files in found.items() if files}


def compute_parts(experiment: Experiment, teacher: Model, kept: Path, splits: Splits) -> None:
    """Compute the parts that are not in the folder `parts` yet."""
    folder, files = kept / "parts", [file for own in splits.values() for file in own]
    folder.mkdir(exist_ok=True)
    missing = [part for part in range(len(files)) if not part_file(folder, part).exists()]
    log.info("%s (%s) computes %d of %d parts", teacher.version, teacher.trained.form, len(missing), len(files))
    if not missing:
        return
    rows = sum(len(TokenTable.open(files[part]).documents) for part in missing)
    with open_workers(experiment, "teach", rows) as workers:
        shared = {parent: workers.staged.share(parent) for parent in {file.parent for file in files}}
        addresses = tuple(below(shared[file.parent], file.name) for file in files)
        labeler = Labeler.of(workers.staged, teacher.trained, Prediction())
        write_parts(workers, _Logits(labeler, addresses, masks(experiment, teacher)), missing, folder)


def masks(experiment: Experiment, teacher: Model) -> tuple[str, str]:
    """Return the token that hides words from the student, and that of the teacher; "" if augmentation masks none."""
    if "masking" not in experiment.preprocessing.augment:
        return "", ""
    student = encoder_folder(experiment.model.name, experiment.runtime)
    ours, theirs = (tokens.mask_token(folder / "tokenizer.json") for folder in (student, Path(teacher.trained.folder)))
    return ours, theirs


@dataclass(frozen=True)
class _Logits:
    """Computes the logits of the documents in the file with a number."""

    labeler: Labeler
    files: tuple[str, ...]
    masks: tuple[str, str]  # the student's token in place of masked words, and the teacher's; "" if none are masked

    def __call__(self, number: int) -> Iterator[pa.Table]:
        table = TokenTable.open(fetched(self.files[number]))
        yield self._table(np.zeros((0, self.labeler.head.outputs), np.float32), table.rows[:0])
        done = 0
        rows = table.sentences(table.documents)
        if self.masks[0] != self.masks[1]:
            rows = [tuple(text.replace(*self.masks) for text in texts) for texts in rows]
        for logits in self.labeler.logits(rows):
            yield self._table(logits, table.rows[table.documents[done : done + len(logits)]])
            done += len(logits)

    def _table(self, logits: Array, rows: Array) -> pa.Table:
        values = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), self.labeler.head.outputs)
        return pa.table({"row": rows, "logits": values})


def join_parts(kept: Path, splits: Splits, output: Path) -> dict[str, int]:
    """Write one file of logits for each split, and the unlabeled rows. Return the number of documents of each split."""
    counts, part = {}, 0
    for name, files in splits.items():
        parts = [part_file(kept / "parts", part + number) for number in range(len(files))]
        part += len(files)
        counts[name] = 0
        with pq.ParquetWriter(output / f"{name}.parquet", pq.read_schema(parts[0])) as writer:
            for table in map(pq.read_table, parts):
                if not pc.all(pc.is_finite(pc.list_flatten(table["logits"]))).as_py() and len(table):
                    raise BadInput("the teacher's logits are not finite: name another model.teacher")
                writer.write_table(table)
                counts[name] += len(table)
    if UNLABELED in splits:
        (output / UNLABELED).mkdir()
        for file in splits[UNLABELED]:
            shutil.copyfile(file, output / UNLABELED / file.name)
    return counts
