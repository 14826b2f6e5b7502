"""A table of a real PostgreSQL server, with a login by password that no record and no log shows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

from include.fields.labeling import Scoring
from include.stages import BadInput, ExitCode
from tasks.launching.launch import ROOT
from tasks.sources.table import Chunk
from tasks.stages.labeling.score.database import database_chunks, driver_class, exact_chunks, login
from tasks.staging import Staging
from tests.ports import free_port
from tests.tasks.stages.labeling.score.models import trained

PASSWORD = "correct horse"
BINARIES, DRIVER = (
    Path("/usr/lib/postgresql/15/bin"),
    Path(os.environ.get("POSTGRES_JDBC") or "/usr/share/java/postgresql.jar"),
)
#: The user that runs the server, which does not start as root.
NOBODY = 65534 if os.getuid() == 0 else None


def test_the_login_is_that_of_the_files_or_else_of_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_BERT_SECRETS", raising=False)
    monkeypatch.setenv("SPARK_BERT_JDBC_USER", "ada")
    assert login() == {"user": "ada"}
    monkeypatch.setenv("SPARK_BERT_SECRETS", str(tmp_path))
    (tmp_path / "jdbc_user").write_text("grace\n")
    (tmp_path / "jdbc_password").write_text(f"{PASSWORD}\n")
    assert login() == {"user": "grace", "password": PASSWORD}


def test_a_driver_names_its_class(tmp_path: Path) -> None:
    jar = tmp_path / "driver.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/services/java.sql.Driver", "# comment\norg.example.Driver\n")
    assert driver_class(jar) == "org.example.Driver"
    jar.write_text("no archive")
    with pytest.raises(BadInput, match=r"driver\.jar is not a JDBC driver"):
        driver_class(jar)


def test_a_column_has_its_type_only_if_that_holds_every_value_exactly(tmp_path: Path) -> None:
    kinds = {
        "price": pa.decimal128(6, 2), "most": pa.decimal128(38, 18), "many": pa.decimal128(38, 18),
        "nan": pa.decimal128(6, 2), "at": pa.timestamp("us"), "ever": pa.timestamp("us"),
        "zone": pa.timestamp("us", "UTC"), "day": pa.date32(), "old": pa.date32(), "clock": pa.timestamp("us"),
    }  # fmt: skip
    rows = [
        ("9.50", "12345678901234567890.5", "9" * 30, "NaN", "9999-12-31 23:59:59.999999", "infinity",
         "2026-03-29 02:30:00.5+01", "9999-12-31", "0044-03-15 BC", "12:00:01.5"),
        ("-0.01", "0.1234567890123456789", "1", "1.00", "0001-01-01 00:00:00", "2026-01-31 12:00:00",
         "0001-01-01 00:00:00+00", "0001-01-01", "2026-01-31", None),
        (None,) * 10,
    ]  # fmt: skip
    parts = []
    for number, row in enumerate(rows):
        parts.append(tmp_path / f"part-{number}.parquet")
        columns = {name: pa.array([value], pa.string()) for name, value in zip(kinds, row, strict=True)}
        pq.write_table(pa.table({"id": [number], **columns}), parts[-1])
    chunks = list(exact_chunks(parts, kinds))
    table = pa.Table.from_batches([chunk.rows for chunk in chunks])
    assert [place for chunk in chunks for place in chunk.places] == [1, 2, 3]
    typed = ["price", "at", "zone", "day"]
    assert [name for name, kind in kinds.items() if table.schema.field(name).type == kind] == typed
    for name in kinds:
        written = [row[list(kinds).index(name)] for row in rows]
        assert table[name].to_pylist() == pa.array(written).to_pylist() or name in typed
    assert [str(one) for one in table["price"].to_pylist()] == ["9.50", "-0.01", "None"]
    assert table["at"].to_pylist() == [datetime.max, datetime.min, None]
    assert table["day"].to_pylist() == [date.max, date.min, None]
    assert str(table["zone"][0].as_py()) == "2026-03-29 01:30:00.500000+00:00"


#: A database that is part of Spark.
DERBY = next(Path(pyspark.__file__).parent.glob("jars/derby-*.jar"))


def derby(spark: SparkSession, staged: Staging, folder: Path, *statements: str) -> list[Chunk]:
    """Read the table t of a database in memory that these statements make."""
    java: Any = spark._jvm
    java.java.lang.System.setProperty("derby.stream.error.file", str(folder / "derby.log"))
    address = f"jdbc:derby:memory:{folder};create=true"
    with closing(java.java.sql.DriverManager.getConnection(address)) as connection:
        for statement in statements:
            connection.createStatement().execute(statement)
        scoring = Scoring(input=address, table="t", driver=str(DERBY))
        return list(database_chunks(spark, staged, scoring, folder / "read"))


def test_values_of_a_database_are_read_exactly(spark: SparkSession, staged: Staging, tmp_path: Path) -> None:
    columns = '"b`ody" varchar(9), n decimal(31), price decimal(6, 2), day date, "at" timestamp, "clock" time, d double'
    first = f"'good', {'9' * 31}, 9.50, '9999-12-31', '9999-12-31 23:59:59.999999', '02:30:00', 1e-300"
    second = "'bad', NULL, -0.01, '0001-01-01', '0001-01-01 00:00:00', NULL, NULL"
    chunks = derby(
        spark, staged, tmp_path, f"create table t ({columns})", f"insert into t values ({first}), ({second})"
    )
    table = pa.Table.from_batches([chunk.rows for chunk in chunks])
    assert table.to_pydict() == {
        "b`ody": ["good", "bad"], "N": [Decimal("9" * 31), None], "PRICE": [Decimal("9.50"), Decimal("-0.01")],
        "DAY": [date.max, date.min], "at": [datetime.max, datetime.min], "clock": ["02:30:00", None],
        "D": [1e-300, None],
    }  # fmt: skip
    assert table.schema.field("at").type == pa.timestamp("us")


def test_columns_that_differ_only_in_case_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"t has columns whose names differ only in case: rename one .*`id`"):
        derby(spark, Staging(), tmp_path, 'create table t (id int, "id" int, body varchar(9))')


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server with the table reviews in the database shop, installed first where root may do so."""
    if not (BINARIES.exists() and DRIVER.exists()):
        if os.getuid() or not shutil.which("apt-get"):
            pytest.skip("needs Debian's packages postgresql-15 and libpostgresql-jdbc-java")
        packages = ["postgresql-15", "libpostgresql-jdbc-java"]
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], check=True)
    with tempfile.TemporaryDirectory() as name:  # pytest's folders are closed to other users
        yield from _serve(Path(name))


def _serve(folder: Path) -> Iterator[int]:
    (folder / "password").write_text(PASSWORD)
    if NOBODY is not None:
        for path in (folder, folder / "password"):
            os.chown(path, NOBODY, NOBODY)
    port = free_port()

    def call(name: str, *arguments: str, script: str | None = None) -> None:
        environment = {**os.environ, "PGPASSWORD": PASSWORD, "PGHOST": "127.0.0.1", "PGPORT": str(port)}
        subprocess.run(
            [str(BINARIES / name), *arguments], user=NOBODY, cwd=folder, env=environment, input=script,
            text=True, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    data = str(folder / "data")
    call("initdb", "-D", data, "-U", "ada", "-A", "scram-sha-256", "--pwfile", str(folder / "password"), "-E", "UTF8")
    call("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", f"-p {port} -k {folder}", "start")
    try:
        call("createdb", "-U", "ada", "shop")
        columns = "id int, body text, at timestamp, price numeric(6, 2), n numeric, tz timestamptz"
        # Berlin has no 02:30 on this day.
        values = "'2026-03-29 02:30', 9.50, 123456789012345678901234567890, '9999-12-31 23:59:59.999999+00'"
        rows = ", ".join(f"({number}, 'good film {number}', {values})" for number in range(40))
        few = ("(40, NULL), (41, ' ')", "(42, 'caf\u00e9', 'epoch', 1, 'NaN')")
        script = "".join(f"INSERT INTO reviews VALUES {some};" for some in (rows, *few))
        call("psql", "-q", "-U", "ada", "shop", script=f"CREATE TABLE reviews ({columns}); {script}")
        yield port
    finally:
        call("pg_ctl", "-D", data, "-w", "-m", "fast", "stop")


@pytest.mark.long
def test_a_table_of_a_database_is_scored_with_its_types_and_no_trace_of_the_login(
    server: int, encoder: Path, tmp_path: Path
) -> None:
    model, secrets = trained(tmp_path / "model", encoder), tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "jdbc_user").write_text("ada")
    (secrets / "jdbc_password").write_text(PASSWORD)
    given = {
        "input": f"jdbc:postgresql://127.0.0.1:{server}/shop", "table": "reviews", "driver": str(DRIVER),
        "text": "body", "model": str(model),
    }  # fmt: skip
    run = tmp_path / "home/runs/one"
    command = [
        sys.executable,
        "-m",
        "tasks",
        "score",
        "--experiment",
        json.dumps({"scoring": given}),
        "--run",
        str(run),
    ]
    environment = {**os.environ, "SPARK_BERT_SECRETS": str(secrets), "TZ": "Europe/Berlin"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["rows_in"], result["rows"], result["aside"]) == (43, 41, 2)
    assert result["reasons"] == {"no text": 1, "empty text": 1}
    table = pq.read_table(Path(result["artifact"]) / "scored.parquet")
    assert table["id"].to_pylist() == [*range(40), 42] and table["body"][40].as_py() == "caf\u00e9"
    assert table.schema.field("id").type == pa.int32() and str(table["price"][0].as_py()) == "9.50"
    assert table["at"].to_pylist() == [*[datetime(2026, 3, 29, 2, 30)] * 40, datetime(1970, 1, 1)]
    assert table["n"].to_pylist() == [*["123456789012345678901234567890"] * 40, "NaN"]
    assert table["tz"][0].as_py() == datetime.max.replace(tzinfo=UTC)
    assert table.schema.field("tz").type == pa.timestamp("us", "UTC")
    footer = pq.ParquetFile(Path(result["artifact"]) / "scored.parquet").schema
    assert "NANOS" not in str(footer).upper()  # which Spark refuses
    assert set(table["predicted_label"].to_pylist()) <= {"no", "yes"}
    everything = [file for file in (tmp_path / "home").rglob("*") if file.is_file()]
    assert all(PASSWORD.encode() not in file.read_bytes() for file in everything)
    assert PASSWORD not in done.stdout + done.stderr
    (secrets / "jdbc_password").write_text("wrong")
    command[-1] = str(tmp_path / "home/runs/two")
    refused = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == ExitCode.TRANSIENT  # it may be the server that is at fault
    assert 'password authentication failed for user "ada"' in refused.stderr and "wrong" not in refused.stderr
