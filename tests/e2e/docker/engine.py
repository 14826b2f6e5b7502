"""A Docker engine for the tests: the one that answers, else one of their own that leaves nothing behind."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.debian import install

#: Program to the package of Debian that has it.
PROGRAMS = {"dockerd": "docker.io", "docker": "docker.io", "iptables": "iptables"}
_BUILDKIT = {"DOCKER_BUILDKIT": "1"}


@contextmanager
def running_engine() -> Iterator[None]:
    """Within it, `docker` has an engine to talk to. Skips the tests, with the reason, where there can be none."""
    if answers():
        yield
        return
    if os.geteuid() != 0:
        pytest.skip("no Docker engine answers, and only root can start one: start Docker, or let root run the tests")
    install(PROGRAMS)
    folder = tempfile.mkdtemp(prefix="spark-bert-engine-", dir="/var/tmp")
    try:
        with _daemon(Path(folder)):
            yield
    finally:
        # It goes on alone, because so many files take minutes.
        subprocess.Popen(["rm", "-rf", folder], start_new_session=True)


def answers() -> bool:
    """Whether an engine answers the Docker client of this machine."""
    return shutil.which("docker") is not None and _docker_version().returncode == 0


@cache
def buildkit() -> dict[str, str]:
    """The environment variables with which `docker build` uses BuildKit, as it does where Docker is new and complete.

    BuildKit builds stages at once, and copies from one to another without packing each file twice. New clients need the
    plugin buildx for it; Debian's client has it built in. Without either, there is nothing to set.
    """
    for client in filter(None, [shutil.which("docker"), shutil.which("docker", path="/usr/bin")]):
        helped = subprocess.run([client, "build", "--help"], env=os.environ | _BUILDKIT, capture_output=True)
        if helped.returncode == 0:
            folder = tempfile.mkdtemp(prefix="spark-bert-client-")
            Path(folder, "docker").symlink_to(client)
            atexit.register(shutil.rmtree, folder)
            return _BUILDKIT | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    return {}


@contextmanager
def _daemon(folder: Path) -> Iterator[None]:
    log = folder / "dockerd.log"
    command = ["dockerd", f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
    with log.open("w") as output:
        daemon = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _await(daemon, log)
        yield
    finally:
        daemon.terminate()  # it stops the containers that are left
        daemon.wait(timeout=60)


def _await(daemon: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(60):
        if daemon.poll() is None and answers():
            return
        time.sleep(1)
    pytest.skip(f"no Docker engine can be started on this machine; the end of its log:\n{log.read_text()[-3000:]}")


def _docker_version() -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["docker", "version"], capture_output=True, check=False)
