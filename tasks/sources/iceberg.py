"""Snapshots of a table of Iceberg."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchIdentifierError, NoSuchTableError
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask
from sqlalchemy.exc import SQLAlchemyError

from include.folders import check_file
from include.stages import BadInput
from include.tables import catalog_file
from tasks.sources.lake import LakeTable, check_places, unreadable


def open_iceberg(catalog: str, table: str, version: str) -> LakeTable:
    """Open a table, CATALOG.NAMESPACE.TABLE, in the SQL catalog at this address, as of its current snapshot or one."""
    file = catalog_file(catalog)
    if file:
        check_file(Path(file), "correct the address of the catalog, such as sqlite:////data/catalog.db")
    of, _, identifier = table.partition(".")
    try:
        # Without the option, an address that is misspelled would become a new catalog.
        found = SqlCatalog(of, uri=catalog, init_catalog_tables="false").load_table(identifier)
    except (NoSuchTableError, NoSuchIdentifierError) as error:
        raise BadInput(f"{catalog} has no table {table}: name it as CATALOG.NAMESPACE.TABLE") from error
    except (SQLAlchemyError, OSError, ValueError) as error:
        raise unreadable(file or catalog, error) from error
    snapshot = found.snapshot_by_id(int(version)) if version else found.current_snapshot()
    if snapshot is None:
        known = ", ".join(str(one.snapshot_id) for one in found.snapshots()[-5:]) or "none, so no rows"
        raise BadInput(f"{table} has no snapshot {version}: the latest are {known}".replace("  ", " "))
    number = str(snapshot.snapshot_id)
    scan, name = found.scan(snapshot_id=snapshot.snapshot_id), f"{table}@{number}"

    def read() -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
        check_places(name, [file.file_path for task in tasks for file in (task.file, *task.delete_files)])
        schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
        return schema, _rows(scan, tasks, schema)

    return LakeTable(name, number, f"iceberg {found.metadata.table_uuid} {number}", read)


def _rows(scan: DataScan, tasks: Sequence[FileScanTask], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files, without deleted ones. The library reads a file at a time, and holds it in memory."""
    for task in tasks:
        reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
        for batch in reader.to_record_batches([task]):
            yield batch.cast(schema)
