"""A table of a real PostgreSQL server, with a login by password that no record and no log shows."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.stages import BadInput, ExitCode
from tasks.launching.launch import ROOT
from tasks.stages.score.database import driver_class, login
from tests.tasks.stages.score.models import trained

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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])

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
        table = "CREATE TABLE reviews (id int, body text, at timestamp, price numeric(6, 2));"
        rows = ", ".join(f"({number}, 'good film {number}', '2026-01-31 12:00', 9.50)" for number in range(40))
        extra = "(40, NULL, NULL, NULL), (41, ' ', now(), 1), (42, 'caf\u00e9', now(), 1)"
        call("psql", "-q", "-U", "ada", "shop", script=f"{table} INSERT INTO reviews VALUES {rows}, {extra};")
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
    environment = {**os.environ, "SPARK_BERT_SECRETS": str(secrets)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["rows_in"], result["rows"], result["aside"]) == (43, 41, 2)
    assert result["reasons"] == {"no text": 1, "empty text": 1}
    table = pq.read_table(Path(result["artifact"]) / "scored.parquet")
    assert table["id"].to_pylist() == [*range(40), 42] and table["body"][40].as_py() == "caf\u00e9"
    assert table.schema.field("id").type == pa.int32() and str(table["price"][0].as_py()) == "9.50"
    assert pa.types.is_timestamp(table.schema.field("at").type)
    assert set(table["predicted_label"].to_pylist()) <= {"no", "yes"}
    everything = [file for file in (tmp_path / "home").rglob("*") if file.is_file()]
    assert all(PASSWORD.encode() not in file.read_bytes() for file in everything)
    assert PASSWORD not in done.stdout + done.stderr
    (secrets / "jdbc_password").write_text("wrong")
    command[-1] = str(tmp_path / "home/runs/two")
    refused = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == ExitCode.TRANSIENT  # it may be the server that is at fault
    assert 'password authentication failed for user "ada"' in refused.stderr and "wrong" not in refused.stderr
