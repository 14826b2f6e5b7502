"""Tables of a database, which Spark reads and writes as Parquet, with the exact values of all columns."""

from __future__ import annotations

import logging
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, DateType, DecimalType, TimestampNTZType, TimestampType

from include.fields.labeling import Scoring
from include.folders import check_file, user_path
from include.secrets import DATABASE, VARIABLE
from include.stages import BadInput, Transient
from tasks.inference.parts import write_parquet
from tasks.sources.table import Chunk, parquet_chunks
from tasks.staging import Staging, below

log = logging.getLogger(__name__)

_FETCHED_ROWS = 10_000  # PostgreSQL's driver reads a whole table into the memory unless it is told otherwise
_INEXACT = ("date", "time", "interval", "decimal")  # in the name of a type, such as array<decimal(38,18)>


def database_chunks(spark: SparkSession, staged: Staging, scoring: Scoring, folder: Path) -> Iterator[Chunk]:
    """Yield the rows of the table, which Spark reads into a new folder with the driver that the session has loaded.

    Dates, times and decimal numbers are read as the text that the database itself writes: the types of Java and Spark
    move hours that a time zone lacks, round, and take `infinity` for a common date.
    """
    folder.mkdir()
    reader = spark.read.format("jdbc").option("url", scoring.input).option("dbtable", scoring.table)
    reader = reader.option("driver", driver_class(user_path(scoring.driver))).option("fetchsize", _FETCHED_ROWS)
    reader = reader.option("preferTimestampNTZ", True).options(**login())
    try:
        schema = reader.load().schema
        kinds = {field.name: kind for field in schema if (kind := _exact_type(field.dataType)) is not None}
        as_text = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in kinds)
        rows = (reader.option("customSchema", as_text) if kinds else reader).load()
        rows = rows.toDF(*(f"column{number}" for number in range(len(schema))))  # mapInArrow does not take all names
        rows.mapInArrow(_WritePart(staged.address_of(folder), tuple(schema.names)), "part long").collect()
    except AnalysisException as error:
        first = str(error).splitlines()[0]
        if error.getCondition() == "COLUMN_ALREADY_EXISTS":
            raise BadInput(
                f"{scoring.table} has columns whose names differ only in case: rename one ({first})"
            ) from error
        raise Transient(
            f"{scoring.table} of {scoring.input} cannot be read ({first} {_cause(error)}): check that the database "
            "answers, the login, and scoring.table"
        ) from error
    staged.collect(folder)
    return exact_chunks(sorted(folder.glob("part-*.parquet")), kinds)


@dataclass(frozen=True)
class _WritePart:
    """Writes the rows of a partition to a file; a function for DataFrame.mapInArrow."""

    folder: str  # its address
    names: tuple[str, ...]  # of the columns

    def __call__(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of all chunks. Yield nothing."""
        task = TaskContext.get()
        assert task is not None  # only Spark calls this function, on executors
        tables = (pa.table(chunk.columns, list(self.names)) for chunk in chunks)
        write_parquet(tables, below(self.folder, f"part-{task.partitionId():05d}.parquet"))
        yield from ()


def exact_chunks(parts: Sequence[Path], kinds: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
    """Yield the rows of a table, numbered from 1, from its Parquet files in their order.

    The columns of text get these types if they hold all of their values exactly. They do not hold a number with more
    digits or NaN, a date like `infinity` or before the year 1, or a time of day. The files are read twice.
    """
    found = dict(kinds)
    for chunk in _chunks(parts):
        for name, kind in list(found.items()):
            try:
                _converted(chunk.rows.column(name), kind)
            except (pa.ArrowInvalid, ArithmeticError) as error:
                log.warning("the column %s is text, because %s does not hold all of its values: %s", name, kind, error)
                del found[name]
    for chunk in _chunks(parts):
        rows = chunk.rows
        for name, kind in found.items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, _converted(rows.column(name), kind))
        yield Chunk(rows, chunk.places, chunk.unreadable)


def _chunks(parts: Sequence[Path]) -> Iterator[Chunk]:
    first = 1
    for part in parts:
        for chunk in parquet_chunks(part, first):
            first += len(chunk.rows)
            yield chunk


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_decimal(kind):
        return column.cast(kind)
    # Arrow's cast lets numbers with too many digits wrap.
    return pa.array([None if text is None else Decimal(text) for text in column.to_pylist()], kind)


def driver(scoring: Scoring) -> Path:
    """Return the JDBC driver. Raise BadInput if there is no such file."""
    jar = user_path(scoring.driver)
    check_file(jar, "name the .jar file of the database's JDBC driver as scoring.driver")
    return jar


def driver_class(jar: Path) -> str:
    """Return the name of the class that a JDBC driver registers. Raise BadInput if the file is no driver."""
    try:
        with zipfile.ZipFile(jar) as archive:
            lines = archive.read("META-INF/services/java.sql.Driver").decode("utf-8").splitlines()
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
        raise BadInput(f"{jar} is not a JDBC driver ({error}): name the driver's .jar as scoring.driver") from error
    return next(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def login() -> dict[str, str]:
    """Return the options `user` and `password`, of those that the deployment's files or variables have."""
    folder, found = os.environ.get(VARIABLE, ""), {}
    for (variable, name), option in zip(DATABASE.items(), ("user", "password"), strict=True):
        file = Path(folder, name)
        if folder and file.is_file():
            found[option] = file.read_text(encoding="utf-8").strip()
        elif os.environ.get(variable):
            found[option] = os.environ[variable]
    return found


def _cause(error: AnalysisException) -> str:
    """Return what the database's driver said, which Spark's own message leaves out."""
    origin = getattr(error, "_origin", None)  # py4j's exception, which pyspark keeps to itself
    cause = None if origin is None else origin.getCause()
    return "" if cause is None else str(cause.getMessage())


def _exact_type(kind: DataType) -> pa.DataType | None:
    """Return the type of a column that is read as text; None for one that Spark reads without changing a value."""
    match kind:
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case DateType():
            return pa.date32()
        case TimestampNTZType():
            return pa.timestamp("us")
        case TimestampType():
            return pa.timestamp("us", "UTC")
    return pa.string() if any(name in kind.simpleString() for name in _INEXACT) else None
