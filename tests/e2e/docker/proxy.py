"""The proxy before the Docker engine, as docker-compose.yaml starts it."""

from __future__ import annotations

import http.client
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import docker

from tests.e2e.docker.stand_ins import image
from tests.e2e.make_run import ROOT

VERSION = "/v1.41"


class Proxy(NamedTuple):
    port: int
    home: Path

    @property
    def client(self) -> docker.APIClient:
        """What the operator speaks through."""
        return docker.APIClient(base_url=f"tcp://127.0.0.1:{self.port}", version="auto")

    def call(self, method: str, path: str, body: str | bytes | None = None, **headers: str) -> tuple[int, str]:
        """Status and answer; headers as Content_Type."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Content-Type": "application/json"} | sent)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def create(self, body: str | bytes, **headers: str) -> tuple[int, str, str]:
        """Ask for a container of a fresh name: status, answer and the name."""
        name = f"spark-bert-stage-{uuid.uuid4().hex[:8]}"
        return *self.call("POST", f"{VERSION}/containers/create?name={name}", body, **headers), name


@contextmanager
def running_proxy(home: Path) -> Iterator[Proxy]:
    """The proxy before the engine of this machine, with an image of ours and the folders of a deployment."""
    direct = docker.APIClient(base_url="unix:///var/run/docker.sock", version="auto")
    for name in ("artifacts", "checkpoints", "datasets", "runs/finetune-1", "cache", "data"):
        (home / name).mkdir(parents=True)
    direct.tag("debian:bookworm-slim", "spark-bert-proxy-test/data", "latest")
    socket_group = Path("/var/run/docker.sock").stat().st_gid
    environment = {
        "HOME": home, "CACHE": home / "cache", "DATA": home / "data", "UID": 1000,
        "GID": 1000, "IMAGES": "spark-bert-proxy-test", "TAG": "latest", "NETWORK": "spark-bert-proxy-test",
        "DEPLOYMENT": "proxy-test",
    }  # fmt: skip
    container = subprocess.run(
        [
            "docker", "run", "--detach", "--rm", "--read-only", "--cap-drop", "ALL", "--publish", "127.0.0.1::2375",
            "--user", f"1000:{socket_group}", "--volume", "/var/run/docker.sock:/var/run/docker.sock",
            "--volume", f"{ROOT / 'compose/proxy'}:/usr/local/etc/haproxy:ro",
            *(f"--env=SPARK_BERT_{name}={value}" for name, value in environment.items()), image("HAPROXY_IMAGE"),
        ],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    try:
        proxy = Proxy(int(direct.port(container, 2375)[0]["HostPort"]), home)
        _await(proxy)
        yield proxy
    finally:
        direct.remove_container(container, force=True)
        direct.remove_image("spark-bert-proxy-test/data")


def _await(proxy: Proxy) -> None:
    for _ in range(50):
        with suppress(OSError, http.client.HTTPException):
            if proxy.call("GET", "/_ping")[0] == 200:
                return
        time.sleep(0.1)
    raise AssertionError("the proxy did not start")
