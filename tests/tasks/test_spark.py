"""The session: it says what is missing, explains what fails, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import count, takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast

from include.experiment import Experiment
from include.named_experiments import load
from include.scratch import kernel
from include.stages import BadInput, Transient
from include.tracing import Origin, recording
from tasks.kernels.build import LEVELS, library_path
from tasks.spark import (
    _check_temporary,
    _code,
    _explain,
    jobs_as_spans,
    keep_workers,
    place,
    read_parquet,
    session,
)
from tests.spans import attributes, read_spans

ROOT = Path(__file__).parents[2]
PROGRAM = """
import signal, sys, time
from pyspark import SparkContext
from include.experiment import Experiment
from include.stages import BadInput, StageError
from tasks.spark import session

def stop(signum, frame):
    raise SystemExit(143)

def sleep(batches):
    open(begun, "w").close()
    time.sleep(120)
    yield from batches

def refuse(batches):
    raise BadInput("the model is damaged: train again")
    yield

begun = sys.argv[1]
signal.signal(signal.SIGTERM, stop)
try:
    with session(Experiment(), "test") as spark:
        print(SparkContext._gateway.proc.pid, spark.conf.get("spark.local.dir"), flush=True)
        spark.range(4).mapInArrow({work}, "id long").collect()
except KeyboardInterrupt:
    sys.exit(130)
except StageError as error:
    print(error)
    sys.exit(error.exit_code)
"""


#: What another installation of Spark leaves in the environment of its users.
ELSEWHERE: dict[str, Any] = {
    "SPARK_HOME": "/nowhere", "SPARK_REMOTE": "sc://nowhere:15002", "PYSPARK_SUBMIT_ARGS": "--master yarn",
    "SPARK_LOCAL_DIRS": "/proc", "PYSPARK_DRIVER_PYTHON": "jupyter", "PYSPARK_GATEWAY_PORT": "1",
    "SPARK_SUBMIT_OPTS": "-Xnonsense",
}  # fmt: skip


def start(work: str, begun: Path = Path(os.devnull), **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("{work}", work), str(begun)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **environment},
        start_new_session=True,
    )  # fmt: skip


def assert_nothing_is_left(jvm_and_scratch: str) -> None:
    jvm, scratch = jvm_and_scratch.split()
    assert not Path("/proc", jvm).exists()
    assert not Path(scratch).exists()


@pytest.mark.parametrize(
    ("number", "to_group", "exit_code"),
    [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)],
)
def test_a_signal_ends_jvm_and_scratch_files(
    number: signal.Signals, to_group: bool, exit_code: int, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    with start("sleep", begun) as process:
        assert process.stdout is not None
        started = process.stdout.readline()
        while not begun.exists() and process.poll() is None:
            time.sleep(0.1)
        (os.killpg if to_group else os.kill)(process.pid, number)
        assert process.wait(timeout=60) == exit_code
    assert_nothing_is_left(started)


def test_a_refusal_on_an_executor_is_the_stages(tmp_path: Path) -> None:
    """And what a killed session left in TMPDIR is swept, and Spark says nothing of its own log levels.

    The environment of another installation changes nothing.
    """
    temporary, hadoop = tmp_path / "tmp", tmp_path / "hadoop"
    (temporary / f"spark-bert-abcdefgh-{kernel()}").mkdir(parents=True)
    hadoop.mkdir()
    (hadoop / "core-site.xml").write_text("this is no XML")
    with start("refuse", TMPDIR=str(temporary), HADOOP_CONF_DIR=str(hadoop), **ELSEWHERE) as process:
        output, logged = process.communicate(timeout=120)
    assert "log level" not in logged and "log4j" not in logged
    assert list(temporary.iterdir()) == []
    started, message = output.splitlines()
    assert (message, process.returncode) == ("the model is damaged: train again", 2)
    assert_nothing_is_left(started)


#: What an administrator sets for a cluster, here one whose manager nobody runs.
YARN = """<configuration>
<property><name>yarn.resourcemanager.address</name><value>127.0.0.1:1</value></property>
<property><name>ipc.client.connect.max.retries</name><value>0</value></property>
<property><name>yarn.resourcemanager.connect.max-wait.ms</name><value>1000</value></property>
<property><name>yarn.resourcemanager.connect.retry-interval.ms</name><value>500</value></property>
</configuration>"""
KUBERNETES = "spark.kubernetes.container.image registry.example.org/spark-bert/train:1.0\n"


#: Opens a session on the cluster that the command line names.
ON_CLUSTER = """
import sys
from include.named_experiments import load
from include.stages import StageError
from tasks.spark import session

try:
    with session(load("movies", [f"runtime.spark_master={sys.argv[1]}"]), "test"):
        pass
except StageError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("master", ["yarn", "k8s://http://127.0.0.1:1"])
def test_spark_asks_the_manager_of_a_cluster(master: str, tmp_path: Path) -> None:
    """Spark accepts the settings that we make, together with an administrator's: what fails is the connection."""
    (tmp_path / "yarn-site.xml").write_text(YARN)
    (tmp_path / "spark-defaults.conf").write_text(KUBERNETES)
    environment = os.environ | {"HADOOP_CONF_DIR": str(tmp_path), "SPARK_CONF_DIR": str(tmp_path)}
    command = [sys.executable, "-c", ON_CLUSTER, master]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    said = f"{master} cannot be used (java.net.ConnectException: Connection refused): start the cluster, or correct "
    assert done.stdout.startswith(said) and done.returncode == 75, done.stderr


def test_yarn_needs_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    experiment = load("movies", ["runtime.spark_master=yarn"])
    with pytest.raises(BadInput, match="name their folder in HADOOP_CONF_DIR"), session(experiment, "test"):
        pass


def test_other_failures_may_be_tried_again() -> None:
    full = _explain(ConnectionError("OSError: [Errno 28] No space left on device"))
    assert isinstance(full, Transient) and "no space is left" in str(full)
    other = _explain(ConnectionError("Traceback:\n  File x\nValueError: bad\n\tat java.lang.Thread.run"))
    assert isinstance(other, Transient) and "a Spark job failed: ValueError: bad" in str(other)
    ours = _explain(ConnectionError("Traceback:\n  File x\ninclude.stages.Transient: no answer\nSparkException: x"))
    assert isinstance(ours, Transient) and str(ours) == "no answer"


def java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("version", "says"), [("1.8.0_412", "1.8.0_412"), ("11.0.2", "11.0.2"), ("", "contains no bin/java")]
)
def test_java_too_old_or_missing(version: str, says: str, tmp_path: Path) -> None:
    home = java(tmp_path, version) if version else tmp_path
    with start("sleep", JAVA_HOME=str(home)) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == BadInput.exit_code
    assert says in output and "openjdk-17-jre-headless" in output


def test_temporary_files_on_noexec_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java unpacks libraries there, and could not load them."""
    _check_temporary(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC))  # mounting one takes root
    with pytest.raises(BadInput, match=f"{tmp_path} is on a file system that is mounted noexec, .*: set TMPDIR to"):
        _check_temporary(tmp_path)


def test_a_session_inside_a_session_is_that_one(spark: SparkSession) -> None:
    with session(Experiment(), "inner") as inner:
        assert inner is spark
    assert spark.range(3).count() == 3


def test_a_session_has_no_port_beyond_the_loopback_and_takes_no_objects_from_strangers(spark: SparkSession) -> None:
    spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()  # starts Python's own server
    own = psutil.Process()
    ports = [port for process in (own, *own.children(recursive=True)) for port in process.net_connections("inet")]
    addresses = {port.laddr.ip.removeprefix("::ffff:") for port in ports if port.status == psutil.CONN_LISTEN}
    assert addresses and all(ip_address(address).is_loopback for address in addresses)
    answer = send_object(int(spark.conf.get("spark.driver.port") or 0))
    assert b"Expected SaslMessage" in answer and b"RpcFailure" not in answer


def send_object(port: int) -> bytes:
    """Send an object of Java to an endpoint that every driver has, as Spark's own protocol does; return the answer."""
    utf = [struct.pack(">H", len(text)) + text for text in (b"127.0.0.1", b"endpoint-verifier", b"from a stranger")]
    message = b"\0\1" + utf[0] + struct.pack(">i", port) + utf[1] + b"\xac\xed\0\5t" + utf[2]
    request = struct.pack(">BqI", 3, 7, len(message)) + message
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(struct.pack(">q", 8 + len(request)) + request)
        return connection.recv(4096)


def test_the_code_for_other_machines_is_whole(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(_code(tmp_path))}
    program = "import include.stages, tasks; print(include.stages.__file__)"
    found = subprocess.check_output([sys.executable, "-c", program], cwd=tmp_path, env=environment, text=True)
    assert found.strip() == str(tmp_path / "spark_bert.zip" / "include" / "stages.py")


def test_ranks_on_other_machines_find_the_same_kernels(tmp_path: Path) -> None:
    with zipfile.ZipFile(_code(tmp_path)) as archive:  # as Spark unpacks it for ranks
        archive.extractall(tmp_path / "code")
    program = "from tasks.kernels import build; print(build.__file__, *map(build.library_path, build.LEVELS))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "code")}
    found = subprocess.check_output([sys.executable, "-c", program], cwd=tmp_path, env=environment, text=True)
    assert found.split() == [str(tmp_path / "code/tasks/kernels/build.py"), *map(str, map(library_path, LEVELS))]


@pytest.mark.parametrize("name", ["home?", "home[1]", "{a,b}*", "\u00e4 %20", "a\\b#c:d"])
def test_a_path_means_this_file_only(spark: SparkSession, tmp_path: Path, name: str) -> None:
    for home in (name, "home1", "a"):
        (tmp_path / home).mkdir()
        pq.write_table(pa.table({"home": [home]}), tmp_path / home / "a.parquet")
    assert [row.home for row in read_parquet(spark, tmp_path / name / "a.parquet").collect()] == [name]
    spark.range(1).write.parquet(place(tmp_path / name / "out"))
    assert (tmp_path / name / "out/_SUCCESS").exists()


def test_keeping_the_workers_takes_one_and_starts_none(spark: SparkSession) -> None:
    spark.range(0, 2, 1, 2).mapInArrow(_pid, "id long").collect()
    workers = _in_turn(spark)
    for _ in workers[1:]:  # then it is the turn of the first one again
        keep_workers(spark)
    assert _in_turn(spark) == workers


def _pid(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in chunks:
        yield pa.RecordBatch.from_arrays([pa.array([os.getpid()])], ["id"])


def _in_turn(spark: SparkSession) -> list[int]:
    """The Python workers, in the order in which they get tasks. The first one gets one more in the end."""
    tasks = (spark.range(0, 1, 1, 1).mapInArrow(_pid, "id long").collect()[0].id for _ in count())
    workers = [next(tasks)]
    return workers + list(takewhile(lambda worker: worker != workers[0], tasks))


def test_each_job_of_a_session_is_a_span(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).collect()
    file, origin = tmp_path / "predict.jsonl", Origin("0a" * 16, "", {})
    with recording(file, origin, "predict"), session(Experiment(), "predict") as same:
        assert len(same.range(100).repartition(2).collect()) == 100
        keep_workers(same)  # it does nothing and is no span
        assert same.range(9).join(broadcast(same.range(3)), "id").count() == 3  # Spark collects it in its own thread
        same.sparkContext.range(9, numSlices=3).sum()
    *jobs, stage = read_spans(file)
    assert len({attributes(job)["spark.job"] for job in jobs}) == len(jobs) >= 2
    assert {job["parentSpanId"] for job in jobs} == {stage["spanId"]}
    assert not any("/spark.py" in job["name"] or "$" in job["name"] for job in jobs)
    assert jobs[-1]["name"].startswith("Spark: sum at ") and attributes(jobs[-1])["spark.tasks"] == 3
    for job in jobs:
        begin, end = int(job["startTimeUnixNano"]), int(job["endTimeUnixNano"])
        millisecond = 1_000_000  # as exact as Spark is
        assert int(stage["startTimeUnixNano"]) - millisecond <= begin <= end <= int(stage["endTimeUnixNano"])


def test_a_session_whose_jobs_are_not_told_fails_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a busy machine, where Spark's record of its jobs lags behind for more than ten seconds."""
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)
    file, origin = tmp_path / "predict.jsonl", Origin("0a" * 16, "", {})
    with recording(file, origin, "predict"), jobs_as_spans(spark):
        pass
    assert "the trace lacks some of them" in caplog.text
    assert [span["name"] for span in read_spans(file)] == ["predict"]


def test_a_session_that_breaks_off_records_no_jobs(spark: SparkSession, tmp_path: Path) -> None:
    file, origin = tmp_path / "predict.jsonl", Origin("0a" * 16, "", {})
    with (
        pytest.raises(ValueError, match="no such row"),
        recording(file, origin, "predict"),
        session(Experiment(), "predict") as same,
    ):
        same.range(3).collect()
        raise ValueError("no such row")
    (stage,) = read_spans(file)
    assert stage["status"]["message"] == "no such row"
