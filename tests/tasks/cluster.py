"""A standalone Spark cluster of machines without a common folder, and an S3 server that all of them reach.

    def test_it(cluster: Cluster, tmp_path: Path) -> None:                   # the fixture of conftest.py
        home = cluster.driver_path(tmp_path)                                 # what the driver calls tmp_path
        with cluster.stage("predict", tmp_path, home / "runs" / "one", "--experiment", experiment) as driver:
            cluster.wait_for_request(r"PUT .*part-00001")                    # an executor stores a file
            cluster.kill_executor()
            output, errors = driver.communicate()

The master and two workers with one core each are three machines (machines.py), so executors have neither the checkout
nor the home. `start` runs any command as a driver, such as one with ranks on Spark. The store is a machine with moto's
server; drivers and executors find its address and the login in the variables of AWS.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.tasks.machines import Machines, machines

ROOT = Path(__file__).parents[2]
WORKERS = ("one", "two")
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_LOGIN = {"AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
_DAEMON = {
    "SPARK_NO_DAEMONIZE": "1",
    "SPARK_DAEMON_MEMORY": "256m",
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_BUCKET = (
    "from pyarrow import fs; fs.FileSystem.from_uri('s3://bucket?allow_bucket_creation=1')[0].create_dir('bucket')"
)


@dataclass(frozen=True)
class Cluster:
    """A master, two workers of one core each, and a store.

    Attributes:
        master: its address, for `runtime.spark_master`.
        environment: the variables of drivers; SPARK_BERT_STAGING is one of them.
        workers: the processes of the workers' machines.
    """

    machines: Machines
    master: str
    environment: Mapping[str, str]
    workers: Sequence[subprocess.Popen[bytes]]

    def driver_path(self, folder: Path) -> Path:
        """Return what a driver that is started in a folder calls it: executors have another one there."""
        return folder if self.machines.init else Path("/proc/self/cwd")

    def start(self, command: Sequence[str], folder: Path, **environment: str) -> subprocess.Popen[str]:
        """Start a command as a driver in a folder, with pipes for stdout and stderr."""
        variables = {**os.environ, **self.environment, "PYTHONPATH": str(ROOT), **environment}
        return self.machines.drive(command, folder, variables)

    def stage(self, name: str, folder: Path, run: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
        """Start `python -m tasks NAME --run RUN OPTIONS` as a driver in a folder."""
        options = (*options, "--set", f"runtime.spark_master={self.master}")
        return self.start([sys.executable, "-m", "tasks", name, "--run", str(run), *options], folder, **environment)

    def requests(self) -> list[str]:
        """Return what the store was asked for until now, as "PUT /bucket/staging/.../part-00001.arrow HTTP/1.1"."""
        return re.findall(r'"(?:\x1b\[\w*m)*([A-Z]+ /[^"\x1b]*)', self.machines.log("store"))

    def wait_for_request(self, pattern: str, after: int = 0) -> None:
        """Wait until the store is asked for something after this many requests."""
        wait_for(lambda: any(re.search(pattern, request) for request in self.requests()[after:]))

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors that run now."""
        return [process for worker in self.workers for process in _below(worker.pid) if _EXECUTOR in _command(process)]

    def kill_executor(self) -> None:
        """Kill an executor and its Python workers at once, as when a machine is lost."""
        wait_for(lambda: bool(self.executors()))
        executor = self.executors()[0]
        _kill([executor, *_below(executor.pid)])


@contextmanager
def running(folder: Path, separate: bool = True) -> Iterator[Cluster]:
    """Run a cluster, with its logs in a folder."""
    with machines(folder, separate) as connected, store(connected) as login:
        address, port = connected.address("master"), free_port()
        master, processes = f"spark://{address}:{port}", []
        try:
            processes.append(_role(connected, "master", ["Master", "--port", str(port)], {}))
            size = ["--cores", "1", "--memory", "1g", "--work-dir", "work", master]
            processes.extend(_role(connected, name, ["Worker", *size], login) for name in WORKERS)
            wait_for(lambda: all("Successfully registered" in connected.log(name) for name in WORKERS))
            environment = {
                **login, "SPARK_BERT_STAGING": "s3://bucket/staging", "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": connected.address("driver"),
            }  # fmt: skip
            yield Cluster(connected, master, environment, processes[1:])
        finally:
            _end(processes)


@contextmanager
def store(connected: Machines) -> Iterator[Mapping[str, str]]:
    """Run an S3 server with the bucket "bucket"; yield the variables by which programs find it."""
    address, port = connected.address("store"), free_port()
    server = connected.run("store", [sys.executable, "-m", "moto.server", "-H", address, "-p", str(port)], {})
    login = {**_LOGIN, "AWS_ENDPOINT_URL": f"http://{address}:{port}"}
    try:
        wait_for(lambda: "Running on" in connected.log("store") or server.poll() is not None)
        with connected.drive([sys.executable, "-c", _BUCKET], ROOT, {**os.environ, **login}) as made:
            errors = made.communicate()[1]
        assert made.returncode == 0, errors + connected.log("store")
        yield login
    finally:
        _end([server])


def wait_for(condition: Callable[[], bool], seconds: float = 300) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def free_port() -> int:
    """Return a port of the loopback interface that no process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _role(
    connected: Machines, name: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    role, *options = arguments
    program = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
        f"org.apache.spark.deploy.{role.lower()}.{role}",
    ]
    here = ["--host", connected.address(name), "--webui-port", "0"]
    java = {"JAVA_HOME": os.environ["JAVA_HOME"]} if os.environ.get("JAVA_HOME") else {}
    variables = {**_DAEMON, **java, "SPARK_LOCAL_IP": connected.address(name), **environment}
    return connected.run(name, [*program, *here, *options], variables)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        _kill([psutil.Process(process.pid), *_below(process.pid)])
        process.wait()


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _below(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
