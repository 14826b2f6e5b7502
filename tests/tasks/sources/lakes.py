"""Tables of Delta Lake and Iceberg with rows that were deleted, as other programs write them."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.typedef import Record

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def rows(count: int, first: int = 0) -> pa.Table:
    """Rows with different texts and two labels."""
    numbers = range(first, first + count)
    labels = [("no", "yes")[number % 2] for number in numbers]
    return pa.table({"id": list(numbers), "body": [f"text {number}" for number in numbers], "class": labels})


def delete_by_vector(folder: Path, deleted: Sequence[int]) -> None:
    """Delete rows of the only file of a Delta table with a deletion vector, as Spark does."""
    table = DeltaTable(folder)
    log = folder / "_delta_log"
    (added,) = [action["add"] for action in _actions(log / f"{table.version():020}.json") if "add" in action]
    bitmap = struct.pack("<III", 12346, 1, (len(deleted) - 1) << 16) + struct.pack("<I", 16)
    bitmap += b"".join(struct.pack("<H", row) for row in sorted(deleted))
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    vector = {"storageType": "i", "pathOrInlineDv": _z85(data), "sizeInBytes": len(data), "cardinality": len(deleted)}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    actions = [
        {"protocol": protocol},
        {"remove": {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**added, "deletionVector": vector}},
        {"commitInfo": {"timestamp": 1, "operation": "DELETE"}},
    ]
    (log / f"{table.version() + 1:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def _actions(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _z85(data: bytes) -> str:
    padded, text = data + bytes(-len(data) % 4), ""
    for start in range(0, len(padded), 4):
        value = int.from_bytes(padded[start : start + 4], "big")
        text += "".join(_Z85[value // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def delta(folder: Path, *tables: pa.Table) -> Path:
    """A table with a version for each of the given tables, which are appended."""
    for table in tables:
        write_deltalake(folder, table, mode="append")
    return folder


def catalog(folder: Path) -> str:
    """The address of a catalog in the folder; the name of the catalog is prod."""
    return f"sqlite:///{folder / 'catalog.db'}"


def iceberg(folder: Path, *tables: pa.Table, name: str = "shop.reviews") -> Table:
    """A table of the catalog in the folder with a snapshot for each of the given tables, which are appended."""
    prod = SqlCatalog("prod", uri=catalog(folder), warehouse=f"file://{folder}/warehouse")
    prod.create_namespace_if_not_exists("shop")
    made = prod.create_table(name, schema=tables[0].schema)
    for table in tables:
        made.append(table)
    return made


class _Deletes(ManifestWriterV2):
    """Writes a manifest of delete files, which the library reads but does not write."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_by_position(table: Table, deleted: Sequence[int]) -> None:
    """Delete rows of the only file of an Iceberg table with a file of positions, as Spark does."""
    (task,) = table.scan().plan_files()
    file = f"{table.location()}/data/deletes.parquet"
    positions = {"file_path": [task.file.file_path] * len(deleted), "pos": pa.array(deleted, pa.int64())}
    pq.write_table(pa.table(positions), file.removeprefix("file://"))
    found = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=file, file_format=FileFormat.PARQUET, partition=Record(),
        record_count=len(deleted), file_size_in_bytes=Path(file.removeprefix("file://")).stat().st_size,
    )  # fmt: skip
    found.spec_id = 0
    with table.transaction() as transaction:
        producer: Any = transaction.update_snapshot().fast_append()
        output = table.io.new_output(f"{table.location()}/metadata/deletes.avro")
        with _Deletes(table.spec(), table.schema(), output, producer.snapshot_id, "deflate") as writer:
            entry = {"status": ManifestEntryStatus.ADDED, "snapshot_id": producer.snapshot_id}
            writer.add(
                ManifestEntry.from_args(**entry, sequence_number=None, file_sequence_number=None, data_file=found)
            )
        manifests = [writer.to_manifest_file(), *producer._existing_manifests()]
        producer._manifests = lambda: manifests
        producer.commit()
