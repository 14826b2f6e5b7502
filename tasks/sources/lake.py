"""Tables of Delta Lake and Iceberg: one version of a table, which is copied into a Parquet file and read like any."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from include.fields.labeling import Scoring
from include.folders import user_path
from include.glue import SPLITS
from include.scratch import scratch_folder
from include.stages import BadInput, Transient
from include.tables import is_delta

_COLOR = re.compile(r"\x1b\[[0-9;]*m")  # in the errors of deltalake


@dataclass(frozen=True)
class LakeTable:
    """A version of a table.

    Attributes:
        name: what messages call it.
        version: the number of the version, or the id of the snapshot.
        identity: a text that no other version of a table has.
        read: opens it: its columns, and its rows in an order that depends on the version only.
    """

    name: str
    version: str
    identity: str
    read: Callable[[], tuple[pa.Schema, Iterator[pa.RecordBatch]]]

    def copy(self, folder: Path) -> Path:
        """Copy its rows into a Parquet file in the folder."""
        file = folder / f"{re.sub(r'[^A-Za-z0-9_.@-]+', '-', self.name.rpartition('/')[2])}.parquet"
        try:
            schema, batches = self.read()
            with pq.ParquetWriter(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
        except (BadInput, Transient):
            raise
        except Exception as error:  # the libraries raise errors of many kinds, some of which are only Exceptions
            if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
                raise
            raise unreadable(self.name, error) from error
        return file


class CopiedTable(Mapping[str, tuple[Path, ...]]):
    """The file of a table with all rows, by split. The table is copied when the file is first asked for.

    The copy lies in the folder for temporary files, and is removed with this object.
    """

    def __init__(self, table: LakeTable) -> None:
        self._table, self._files = table, tuple[Path, ...]()

    def __getitem__(self, split: str) -> tuple[Path, ...]:
        if split not in SPLITS:
            raise KeyError(split)
        if not self._files:
            stack = ExitStack()
            weakref.finalize(self, stack.close)
            folder = stack.enter_context(scratch_folder(Path(tempfile.gettempdir()), "spark-bert"))
            self._files = (self._table.copy(folder),)
        return self._files

    def move(self, folder: Path) -> None:
        """Move the copy to a folder that other machines have under the same path."""
        (file,) = self["train"]
        self._files = (Path(shutil.move(file, folder / file.name)),)

    def __iter__(self) -> Iterator[str]:
        return iter(SPLITS)

    def __len__(self) -> int:
        return len(SPLITS)


def unreadable(name: str, error: Exception) -> BadInput | Transient:
    """Return the error for a table that cannot be read: of an address a try later may help."""
    cause = " ".join(_COLOR.sub("", str(error)).split())[:300] or type(error).__name__
    if "://" in name:
        return Transient(f"{name} cannot be read ({cause}): check the address and the login")
    return BadInput(f"{name} cannot be read ({cause}): if its files were removed, name a later version")


def check_places(name: str, files: Iterable[Path]) -> None:
    """Raise BadInput if a table has files on this machine that lie outside of the data of the deployment."""
    if root := os.environ.get("SPARK_BERT_DATA"):
        for file in files:
            if not file.resolve().is_relative_to(Path(root).resolve()):
                raise BadInput(f"{name} has the file {file}, which is not below {root}: move the whole table there")


def open_table(kind: str, path: str, table: str, version: str) -> LakeTable:
    """Open a version of a "delta" or "iceberg" table, the newest one if none is named."""
    if kind == "delta":
        from tasks.sources.delta import open_delta

        return open_delta(path, version)
    from tasks.sources.iceberg import open_iceberg

    return open_iceberg(path, table, version)


def is_lake(scoring: Scoring) -> bool:
    """Return whether the table to score is one of Delta Lake, as its folder shows, or of Iceberg, which has a name."""
    named = bool(scoring.table) or "://" in scoring.input
    return not scoring.is_database and (named or is_delta(user_path(scoring.input)))


def scored_table(scoring: Scoring) -> LakeTable | None:
    """Open the version of the table to score, the newest one if none is named; None if it is no such table."""
    if is_lake(scoring):
        return open_table("iceberg" if scoring.table else "delta", scoring.input, scoring.table, scoring.version)
    if scoring.version and not scoring.is_database:
        raise BadInput(f"scoring.version is {scoring.version}, but {scoring.input} is no Delta table: remove it")
    return None
