"""Versions of a table of Delta Lake."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from include.folders import user_path
from include.stages import BadInput
from tasks.sources.lake import LakeTable, check_places, unreadable


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
        check_places(name, table.file_uris())
    except (DeltaError, OSError) as error:
        raise unreadable(name, error) from error
    return LakeTable(name, str(table.version()), f"delta {table.metadata().id} {table.version()}", lambda: _rows(table))


def _rows(table: DeltaTable) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the columns and the rows, without deleted ones, in the order of the files in the table's log."""
    engine = QueryBuilder().register("this", table)
    for batch in engine.execute("SET datafusion.execution.target_partitions = 1"):  # more have no order
        del batch
    found = pa.RecordBatchReader.from_stream(engine.execute("SELECT * FROM this"))
    return found.schema, iter(found)
