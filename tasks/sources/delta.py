"""Versions of a table of Delta Lake."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from include.folders import user_path
from include.stages import BadInput
from tasks.sources.lake import LakeTable, check_places, unreadable

#: A path in the log that is, or that the library takes for, a whole URL, one from the root, or one with a query.
_ODD = re.compile(r"[/\s]|[A-Za-z][A-Za-z0-9+.-]*:|.*[\\?#\x00-\x1f]", re.DOTALL)


def open_delta(path: str, version: str) -> LakeTable:
    """Open a table by its folder or address, in its newest version unless one is named."""
    place = path if "://" in path else str(user_path(path).absolute())
    try:
        table = DeltaTable(place)
    except TableNotFoundError as error:
        raise BadInput(f"{path} is not a Delta table: name the folder that contains _delta_log") from error
    except (DeltaError, OSError) as error:
        raise unreadable(path, error) from error
    newest = int(table.version())
    if version and int(version) > newest:
        raise BadInput(f"{path} has no version {version}: the newest is {newest}")
    name = f"{path}@v{version or newest}"
    try:
        table.load_as_version(int(version or newest))
        files = sorted(pa.table(table.get_add_actions(flatten=True))["path"].to_pylist())
        _check_files(name, place, files)
    except (DeltaError, OSError) as error:
        raise unreadable(name, error) from error
    # Two copies of a table have the same id, but not the same files once they have changed.
    digest = hashlib.sha256("\n".join(files).encode()).hexdigest()
    identity = f"delta {table.metadata().id} {table.version()} {digest}"
    return LakeTable(name, str(table.version()), identity, lambda: _rows(table))


def _check_files(name: str, place: str, files: list[str]) -> None:
    """Raise BadInput if the log of a table has files outside of the data of the deployment."""
    odd = next((file for file in files if _ODD.match(file) or ".." in unquote(file).split("/")), "")
    if odd and os.environ.get("SPARK_BERT_DATA"):
        raise BadInput(f"{name} has the file {odd!r}, which is not in its folder: write the whole table again")
    if "://" not in place:
        check_places(name, (Path(place, unquote(file)) for file in files))


def _rows(table: DeltaTable) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the columns and the rows, without deleted ones, in the order of the files in the table's log."""
    engine = QueryBuilder().register("this", table)
    for batch in engine.execute("SET datafusion.execution.target_partitions = 1"):  # more have no order
        del batch
    found = pa.RecordBatchReader.from_stream(engine.execute("SELECT * FROM this"))
    return found.schema, iter(found)
