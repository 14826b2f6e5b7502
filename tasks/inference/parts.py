"""Label the parts of a table, each into a Parquet file of its own: what predict and score share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from include.answers import ABSTAINED
from tasks.scoring.risk import Guard
from tasks.staging import below, repeating, whole_file
from tasks.workers import Workers

log = logging.getLogger(__name__)
#: Yields the rows of the part with a number, with their answers. It is sent to workers.
Label = Callable[[int], Iterator[pa.Table]]


def part_file(folder: Path, part: int) -> Path:
    """Return the file of a part."""
    return folder / f"part-{part:05d}.parquet"


def write_parts(workers: Workers, label: Label, parts: Sequence[int], folder: Path) -> None:
    """Write the files of parts. Each is in the folder, whole, while others are still computed."""
    files = [part_file(folder, part) for part in parts]

    def done() -> int:
        workers.staged.collect(folder, ended=False)
        return sum(file.exists() for file in files)

    with progress(done, len(files)):
        work = _WritePart(label, tuple(parts), workers.staged.address_of(folder))
        workers.map(work, len(parts))
    workers.staged.collect(folder)


@dataclass(frozen=True)
class _WritePart:
    """Writes the part at a position among `parts` to its file."""

    label: Label
    parts: tuple[int, ...]  # their numbers
    folder: str  # its address

    def __call__(self, at: int) -> None:
        part = self.parts[at]
        write_parquet(self.label(part), below(self.folder, part_file(Path(), part).name))


def write_parquet(tables: Iterator[pa.Table], address: str) -> None:
    """Write tables of one schema to a file. Without a table there is no file."""
    first = next(tables, None)
    if first is None:
        return
    with whole_file(address) as path, pq.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


def answered(files: Iterable[Path], guard: Guard | None) -> dict[str, int]:
    """Count the labeled rows of files where a guard does not abstain; nothing if it never does."""
    if guard is None or not guard.abstains:
        return {}
    batches = (batch for file in files for batch in pq.ParquetFile(file).iter_batches(columns=[ABSTAINED]))
    return {"answered": sum(batch.column(0).null_count for batch in batches)}


def progress(done: Callable[[], int], parts: int, seconds: float = 5) -> AbstractContextManager[None]:
    """Log how many of the parts are labeled, every few seconds until the block ends."""
    reported = 0

    def report() -> None:
        nonlocal reported
        if (now := done()) != reported:
            log.info("labeled %d of %d parts", now, parts)
            reported = now

    return repeating(report, seconds)
