"""The proxy before the Docker engine, as docker-compose.yaml starts it."""

from __future__ import annotations

import http.client
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import docker

from include.tracing import TRACEPARENT
from spark_bert.dag.params import from_form
from spark_bert.deployment.containers import user
from spark_bert.operators.docker import DockerStageOperator
from spark_bert.operators.tracing import environment
from tests.e2e.docker.stand_ins import image
from tests.e2e.make_run import ROOT

VERSION = "/v1.41"
#: What the names of a deployment's containers start with.
PREFIX = "spark-bert-stage-proxy-test."
#: Stands in for the stages, whatever it is told to do: who it is, whether it can write the data, and what a link that
#: Airflow has put below runs/ leads to.
STAGE = """FROM debian:bookworm-slim
ENTRYPOINT ["sh", "-c", \\
    "id -u; touch $SPARK_BERT_HOME/data/x || echo ü; cat $SPARK_BERT_HOME/runs/out/secret || echo nothing"]
"""


IMAGES = tuple(f"spark-bert-proxy-test/{name}:latest" for name in ("data", "train-gpu", "search-gpu"))


class Proxy(NamedTuple):
    port: int
    home: Path

    def asked(self, stage: str, **conf: Any) -> dict[str, Any]:
        """The body by which the operator asks for a stage's container; the environment is the deployment's."""
        task = DockerStageOperator(
            task_id=stage, stage=stage, experiment_of=from_form, docker_url=f"tcp://127.0.0.1:{self.port}"
        )
        run = {"dag_id": "finetune", "run_id": "manual__1"}
        instance = SimpleNamespace(**run, id=uuid.uuid4(), task_id=stage, map_index=-1, max_tries=2, try_number=1)
        dag_run = SimpleNamespace(**run, clear_number=0)
        context: Any = {"ti": instance, "dag_run": dag_run, "params": {"experiment": "movies", **conf}}
        task.render_template_fields(context)
        task.variables |= {**environment(context), TRACEPARENT: f"00-{'0a' * 16}-{'0b' * 8}-01"}
        task._identify(context)
        with patch.object(docker.APIClient, "create_container_from_config", return_value={"Id": ""}) as create:
            task._create(context)
        body: dict[str, Any] = create.call_args.args[0]
        return body

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
        name = f"{PREFIX}{uuid.uuid4().hex[:8]}"
        return *self.call("POST", f"{VERSION}/containers/create?name={name}", body, **headers), name


def deployment(home: Path) -> dict[str, str]:
    """What the proxy holds containers to, and what the operator makes them from."""
    return {
        "SPARK_BERT_HOME": str(home), "SPARK_BERT_CACHE": f"{home}/cache", "SPARK_BERT_DATA": f"{home}/data",
        "SPARK_BERT_IMAGES": "spark-bert-proxy-test", "SPARK_BERT_TAG": "latest", "SPARK_BERT_GPUS": "2",
        "SPARK_BERT_NETWORK": "spark-bert-proxy-test", "SPARK_BERT_DEPLOYMENT": "proxy-test",
        "SPARK_BERT_LIMITS": '{"gate": {"memory": "14g", "tmp": "3g"}}', "MLFLOW_TRACKING_URI": "http://mlflow:5000",
    }  # fmt: skip


def build(dockerfile: str, *names: str) -> None:
    """Make an image of several names."""
    tags = [f"--tag={name}" for name in names]
    classic = os.environ | {"DOCKER_BUILDKIT": "0"}  # the client may lack the other builder
    subprocess.run(["docker", "build", "--quiet", *tags, "-"], input=dockerfile, env=classic, text=True, check=True)


@contextmanager
def running_proxy(home: Path) -> Iterator[Proxy]:
    """The proxy before the engine of this machine, with an image of ours and the folders of a deployment."""
    direct = docker.APIClient(base_url="unix:///var/run/docker.sock", version="auto")
    folders = ("artifacts", "checkpoints", "datasets", "runs", "searches", "streams", "cache", "data/glue", "secrets")
    for name in folders:
        (home / name).mkdir(parents=True)
    (home / "secrets/secret").write_text("secret")
    (home / "runs/out").symlink_to(home / "secrets")
    build(STAGE, *IMAGES)
    socket_group = Path("/var/run/docker.sock").stat().st_gid
    uid, gid = user()
    container = subprocess.run(
        [
            "docker", "run", "--detach", "--rm", "--read-only", "--cap-drop", "ALL", "--publish", "127.0.0.1::2375",
            "--user", f"{uid}:{socket_group}", "--volume", "/var/run/docker.sock:/var/run/docker.sock",
            "--volume", f"{ROOT / 'compose/proxy'}:/usr/local/etc/haproxy:ro",
            *(f"--env={name}={value}" for name, value in deployment(home).items()),
            f"--env=SPARK_BERT_UID={uid}", f"--env=SPARK_BERT_GID={gid}", image("HAPROXY_IMAGE"),
        ],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    try:
        proxy = Proxy(int(direct.port(container, 2375)[0]["HostPort"]), home)
        _await(proxy)
        yield proxy
    finally:
        direct.remove_container(container, force=True)
        for name in IMAGES:
            direct.remove_image(name, force=True)


def _await(proxy: Proxy) -> None:
    for _ in range(50):
        with suppress(OSError, http.client.HTTPException):
            if proxy.call("GET", "/_ping")[0] == 200:
                return
        time.sleep(0.1)
    raise AssertionError("the proxy did not start")


def refused(proxy: Proxy, body: str | bytes, **headers: str) -> None:
    """The creation is refused, with words, and the engine knows no such container."""
    status, answer, name = proxy.create(body, **headers)
    assert status in (400, 403), (status, answer)
    known = subprocess.run(["docker", "inspect", name], capture_output=True, check=False)
    assert known.returncode != 0, f"{name} was created"
