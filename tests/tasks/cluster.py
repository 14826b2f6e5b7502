r"""A standalone Spark cluster of machines without a common folder, and an S3 server that all of them reach.

    def test_it(cluster: Cluster) -> None:                    # the fixture of conftest.py
        driver = cluster.start([sys.executable, "-m", "tasks", ..., f"runtime.spark_master={cluster.master}"])
        cluster.kill_executor(r"part-\d+\.arrow")             # the first one that begins to store such a file
        output, errors = driver.communicate()

The master and two workers with one core each are three machines (machines.py), so executors have neither the checkout
nor the home. `start` runs any command as a driver, such as one with ranks on Spark. The store is a machine with moto's
server; drivers and executors find its address and the login in the variables of AWS.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.ports import free_port
from tests.tasks.machines import Machines, machines

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
        workers: the processes of the workers' machines, by their addresses.
        store: the process of the store's machine.
    """

    machines: Machines
    master: str
    environment: Mapping[str, str]
    workers: Mapping[str, subprocess.Popen[bytes]]
    store: subprocess.Popen[bytes]

    def start(self, command: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        """Start a command as a driver, with pipes for stdout and stderr."""
        return self.machines.drive(command, {**self.environment, **environment})

    def requests(self) -> list[tuple[str, str]]:
        """Return the address of the client, and the method and the address of each request that the store answered."""
        return re.findall(
            r'^([\d.]+) .*?"(?:\x1b\[\w*m)*([A-Z]+ /[^ "\x1b]*)', self.machines.log("store"), re.MULTILINE
        )

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors that run now, the oldest first."""
        every = [process for worker in self.workers.values() for process in _below(worker.pid)]
        return sorted((one for one in every if _EXECUTOR in _command(one)), key=psutil.Process.create_time)

    def kill_executor(self, file: str) -> None:
        """Kill the first executor that begins to store a file, with its Python workers, as when a machine is lost.

        Meanwhile the store answers nothing, so neither this file nor one that another executor begins is stored.
        """
        before, store = len(self.requests()), [psutil.Process(self.store.pid), *_below(self.store.pid)]
        wait_for(lambda: any(re.search(file, asked) for _, asked in self.requests()[before:]))
        for process in store:
            process.suspend()
        client = next(client for client, asked in self.requests()[before:] if re.search(file, asked))
        executor = next(one for one in self.executors() if one in _below(self.workers[client].pid))
        _kill([executor, *_below(executor.pid)])
        for process in store:
            process.resume()


@contextmanager
def running(folder: Path, separate: bool = True) -> Iterator[Cluster]:
    """Run a cluster, with its logs in a folder."""
    with machines(folder, separate) as connected, store(connected) as (server, login):
        address, port = connected.address("master"), free_port()
        master, processes = f"spark://{address}:{port}", []
        try:
            processes.append(_role(connected, "master", ["Master", "--port", str(port)], {}))
            size = ["--cores", "1", "--memory", "1g", "--work-dir", "work", master]
            workers = {name: _role(connected, name, ["Worker", *size], login) for name in WORKERS}
            processes.extend(workers.values())
            wait_for(lambda: all("Successfully registered" in connected.log(name) for name in WORKERS))
            environment = {
                **login, "SPARK_BERT_STAGING": "s3://bucket/staging", "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": connected.address("driver"),
            }  # fmt: skip
            hosts = {connected.address(name): worker for name, worker in workers.items()}
            yield Cluster(connected, master, environment, hosts, server)
        finally:
            _end(processes)


@contextmanager
def store(connected: Machines) -> Iterator[tuple[subprocess.Popen[bytes], Mapping[str, str]]]:
    """Run an S3 server with the bucket "bucket"; yield it, and the variables by which programs find it."""
    address, port = connected.address("store"), free_port()
    server = connected.run("store", [sys.executable, "-m", "moto.server", "-H", address, "-p", str(port)], {})
    login = {**_LOGIN, "AWS_ENDPOINT_URL": f"http://{address}:{port}"}
    try:
        wait_for(lambda: "Running on" in connected.log("store") or server.poll() is not None)
        with connected.drive([sys.executable, "-c", _BUCKET], login) as made:
            errors = made.communicate()[1]
        assert made.returncode == 0, errors + connected.log("store")
        yield server, login
    finally:
        _end([server])


def wait_for(condition: Callable[[], bool], seconds: float = 300) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


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
