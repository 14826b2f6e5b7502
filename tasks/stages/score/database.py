"""Tables of a database, which Spark reads, and writes as Parquet."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from include.paths import check_file, user_path
from include.secrets import DATABASE, VARIABLE
from include.sections import Scoring
from include.stages import BadInput, Transient

_FETCHED_ROWS = 10_000  # PostgreSQL's driver reads a whole table into the memory unless it is told otherwise


def write_parquet(spark: SparkSession, scoring: Scoring, folder: Path) -> list[Path]:
    """Read the table, and return the Parquet files of its rows in their order.

    Args:
        spark: The session, which must have loaded the driver.
        scoring: The experiment's scoring section.
        folder: The folder to write, which must not exist.

    Raises:
        BadInput: If the driver is no driver.
        Transient: If the database does not give the table.
    """
    try:
        _of_database(spark, scoring).write.parquet(str(folder.absolute()))
    except AnalysisException as error:
        first = str(error).splitlines()[0]
        raise Transient(
            f"{scoring.table} of {scoring.input} cannot be read ({first} {_cause(error)}): check that the database "
            "answers, the login, and scoring.table"
        ) from error
    return sorted(folder.glob("part-*.parquet"))


def driver(scoring: Scoring) -> tuple[Path, ...]:
    """Return the JDBC driver if the table is in a database. Raise BadInput if there is no such file."""
    if not scoring.is_database:
        return ()
    jar = user_path(scoring.driver)
    check_file(jar, "name the .jar file of the database's JDBC driver as scoring.driver")
    return (jar,)


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


def _of_database(spark: SparkSession, scoring: Scoring) -> DataFrame:
    reader = spark.read.format("jdbc").option("url", scoring.input).option("dbtable", scoring.table)
    reader = reader.option("driver", driver_class(user_path(scoring.driver))).option("fetchsize", _FETCHED_ROWS)
    return reader.options(**login()).load()
