"""Snapshots of a table of Iceberg."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchIdentifierError, NoSuchTableError, ValidationError
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFile, PyArrowFileIO, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask
from sqlalchemy.exc import SQLAlchemyError

from include.folders import check_file
from include.stages import BadInput
from include.tables import catalog_file
from tasks.sources.lake import LakeTable, check_places, unreadable


class CheckedFiles(PyArrowFileIO):
    """Opens files that the deployment allows: those of a catalog in a file lie on the same machine, below its data."""

    def new_input(self, location: str) -> PyArrowFile:
        """Open a file, of data or of metadata. Raise BadInput if it is at another place."""
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme == "file":
            check_places("the table", [Path(path)])
        elif os.environ.get("SPARK_BERT_DATA") and catalog_file(self.properties["uri"]):
            raise BadInput(f"the table has the file {location}, but its catalog is a file: move the whole table there")
        return super().new_input(location)


#: The property of a catalog that names the class which opens files.
_FILES = {"py-io-impl": f"{CheckedFiles.__module__}.{CheckedFiles.__name__}"}


class _Catalog(SqlCatalog):
    """A catalog whose tables do not say how they are opened: their properties could name any class of Python's."""

    def _load_file_io(self, properties: Any = None, location: str | None = None) -> Any:
        return super()._load_file_io({}, location)


def open_iceberg(catalog: str, table: str, version: str) -> LakeTable:
    """Open a table, CATALOG.NAMESPACE.TABLE, in the SQL catalog at this address, as of its current snapshot or one."""
    file = catalog_file(catalog)
    if file:
        check_file(Path(file), "correct the address of the catalog, such as sqlite:////data/catalog.db")
    of, _, identifier = table.partition(".")
    try:
        # Without the option, an address that is misspelled would become a new catalog.
        found = _Catalog(of, uri=catalog, init_catalog_tables="false", **_FILES).load_table(identifier)
    except (NoSuchTableError, NoSuchIdentifierError) as error:
        raise BadInput(f"{catalog} has no table {table}: name it as CATALOG.NAMESPACE.TABLE") from error
    except ValidationError:  # which shows what is in the file
        raise BadInput(
            f"{file or catalog}: the metadata of {table} is no JSON of Iceberg: write the table again"
        ) from None
    except ModuleNotFoundError as error:
        raise BadInput(f"{catalog} needs the Python package {error.name}: add it to the stages' environment") from error
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
        schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
        return schema, _rows(scan, tasks, schema)

    return LakeTable(name, number, f"iceberg {found.metadata.table_uuid} {number}", read)


def _rows(scan: DataScan, tasks: Sequence[FileScanTask], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files, without deleted ones. The library reads a file at a time, and holds it in memory."""
    for task in tasks:
        reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
        for batch in reader.to_record_batches([task]):
            yield batch.cast(schema)
