"""The platform of docker-compose.yaml as `make up` starts it: a run from web page to report, and its sandbox."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest
import yaml

from tests.debian import install
from tests.e2e.docker.stand_ins import others
from tests.e2e.docker.watch import Container, inspect, watched
from tests.e2e.make_run import ROOT
from tests.e2e.server import Call, log_in, to_end, trigger, wait_for
from tests.ports import free_port

CONF = {"preprocessing.sample": 0.1, "training.epochs": 1, "gate.accuracy": 0.55, "runtime.engine": "spark"}
RUNNING = {
    "postgres", "api-server", "scheduler", "dag-processor", "triggerer", "docker-proxy", "spark-master",
    "spark-worker-1", "spark-worker-2", "mlflow", "serve",
}  # fmt: skip


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


class Platform(NamedTuple):
    home: Path
    environment: dict[str, str]

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """scripts/platform.sh; what it says also goes to the log."""
        done = subprocess.run(
            [ROOT / "scripts/platform.sh", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        with self.log.open("a") as log:
            log.write(done.stdout + done.stderr)
        return done

    def python(self, service: str, code: str) -> str:
        """What Python prints in the service's container, or its error."""
        done = self("exec", "-T", service, "python", "-c", code)
        return (done.stdout if done.returncode == 0 else done.stderr).strip()

    @property
    def log(self) -> Path:
        return self.home / "platform.log"

    @property
    def secrets(self) -> Path:
        return self.home / "platform/secrets"

    def call(self) -> Call:
        return log_in(f"http://127.0.0.1:{self.environment['SPARK_BERT_PORT']}", self.secrets / "login.json", self.log)

    def containers(self) -> dict[str, Container]:
        """`docker inspect` of each service's container."""
        label = f"label=com.docker.compose.project={self.environment['COMPOSE_PROJECT_NAME']}"
        found = map(inspect, docker("ps", "--quiet", "--filter", label).split())
        return {container["Config"]["Labels"]["com.docker.compose.service"]: container for container in found}


@pytest.fixture(scope="module")
def platform(images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform of its own, started; nothing of it is left afterwards."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        install({"docker-compose": "docker-compose"})
    subprocess.run([ROOT / "scripts/images.sh", "serve"], check=True)
    home = tmp_path_factory.mktemp("platform")
    own = {
        "SPARK_BERT_HOME": str(home), "SPARK_BERT_DATA": str(home / "data"),
        "SPARK_BERT_PORT": str(free_port()), "SPARK_BERT_SERVE_PORT": str(free_port()),
        "COMPOSE_PROJECT_NAME": f"spark-bert-test-{uuid.uuid4().hex[:6]}",
    }  # fmt: skip
    platform = Platform(home, os.environ | own | others(images["data"]))
    try:
        up = platform("up")
        assert up.returncode == 0, up.stdout + up.stderr
        yield platform
    finally:
        platform("down", "--volumes")


def test_spark_and_the_service_tell_prometheus_their_metrics(platform: Platform) -> None:
    for job in yaml.safe_load((ROOT / "compose/prometheus/prometheus.yml").read_text())["scrape_configs"]:
        for target in job["static_configs"][0]["targets"]:
            if target.startswith(("spark-", "serve")):
                address = f"http://{target}{job.get('metrics_path', '/metrics')}"
                kind = f"import urllib.request as web; print(web.urlopen({address!r}).headers['content-type'])"
                assert platform.python("spark-worker-1", kind).startswith("text/plain"), address


class Finished(NamedTuple):
    call: Call
    run: str
    tasks: dict[str, Any]
    stages: list[Container]


@pytest.fixture(scope="module")
def finished(platform: Platform) -> Finished:
    """A run that the web page's API has triggered, at its end."""
    call = platform.call()
    with watched(platform.home) as stages:
        run = trigger(call, CONF)
        state, tasks = to_end(call, run)
    assert state == "success", tasks
    return Finished(call, run, tasks, stages)


def test_a_run_succeeds_and_its_report_opens(finished: Finished) -> None:
    links = finished.call("GET", f"{finished.tasks['evaluate']['path']}/links")["extra_links"]
    assert "<html" in finished.call("GET", links["Report"])


def test_validate_preprocess_and_predict_ran_on_the_spark_workers(platform: Platform, finished: Finished) -> None:
    code = "import urllib.request as web; print(web.urlopen('http://spark-master:8080/json/').read().decode())"
    master = json.loads(platform.python("spark-master", code))
    assert len(master["workers"]) == 2
    ran = {app["name"] for app in master["completedapps"]}
    assert ran == {"spark-bert validate", "spark-bert preprocess", "spark-bert predict"}
    networks = {
        stage["Config"]["Labels"]["spark-bert.stage"]: stage["HostConfig"]["NetworkMode"] for stage in finished.stages
    }
    online = {stage for stage, network in networks.items() if network != "none"}
    assert online == {"validate", "preprocess", "predict", "track"}


def states(tasks: dict[str, Any]) -> dict[str, str]:
    """The state of each task, which tells in one line where a run has failed."""
    return {name: task["state"] for name, task in tasks.items()}


def test_a_retraining_makes_a_champion_in_the_platforms_mlflow(platform: Platform, finished: Finished) -> None:
    data = Path(platform.environment["SPARK_BERT_DATA"])
    (data / "drop").mkdir()
    (data / "drop/half.tsv.part").touch()
    finished.call("PATCH", "/api/v2/dags/retrain", {"is_paused": False})
    state, tasks = to_end(finished.call, trigger(finished.call, CONF, "retrain"))
    assert state == "success" and tasks["promote"]["state"] == "success", states(tasks)
    alias = "api/2.0/mlflow/registered-models/alias?name=spark-bert-movie-reviews&alias=champion"
    code = f"import urllib.request as web; print(web.urlopen('http://localhost:5000/{alias}').read().decode())"
    champion = json.loads(platform.python("mlflow", code))["model_version"]
    assert champion["version"] == "1" and champion["source"].startswith(f"runs:/{champion['run_id']}/model-")
    watched = f"import os; print(os.listdir('{data}/drop'))"
    assert platform.python("triggerer", watched) == "['half.tsv.part']"


def test_the_service_answers_with_the_champion(platform: Platform) -> None:
    """It follows the retraining above."""
    address = f"http://127.0.0.1:{platform.environment['SPARK_BERT_SERVE_PORT']}"
    for _ in range(60):
        try:
            with urllib.request.urlopen(f"{address}/query", b'{"sentences": "A moving film."}') as answer:
                assert json.load(answer)["model"] == {"name": "spark-bert-movie-reviews", "version": "1"}
                return
        except urllib.error.HTTPError as error:
            assert error.code == 503, error.read()
            time.sleep(1)
    raise AssertionError("the service has no model a minute after the promotion")


@contextmanager
def asking(platform: Platform) -> Iterator[list[str]]:
    """Ask the service 20 times a second; yields the list of the versions that have answered, or of what went wrong."""
    query = f"http://127.0.0.1:{platform.environment['SPARK_BERT_SERVE_PORT']}/query"
    answers, over = list[str](), Event()

    def ask() -> None:
        while not over.wait(0.05):
            try:
                with urllib.request.urlopen(query, b'{"sentences": "A moving film."}', timeout=5) as answer:
                    answers.append(json.load(answer)["model"]["version"])
            except Exception as error:  # whatever it is, it is no answer
                answers.append(repr(error))

    client = Thread(target=ask)
    client.start()
    try:
        yield answers
    finally:
        over.set()
        client.join()


def test_a_promotion_switches_the_answers_once(platform: Platform, finished: Finished) -> None:
    """It follows the tests above: another model is promoted while a client asks, although it has learnt less."""
    changes = {
        "training.seed": 2, "gate.accuracy": 0.4, "gate.beat_baseline": False, "retraining.margin": 0.5,
        "retraining.slice_margin": 0.9,
    }  # fmt: skip
    with asking(platform) as answers:
        state, tasks = to_end(finished.call, trigger(finished.call, CONF | changes, "retrain"))
        assert state == "success" and tasks["promote"]["state"] == "success", states(tasks)
        wait_for(lambda: answers[-1] != "1", seconds=60)
        time.sleep(5)
    assert [version for version, _ in groupby(answers)] == ["1", "2"]
    assert min(answers.count("1"), answers.count("2")) > 20


def test_every_service_is_walled_in(platform: Platform) -> None:
    containers = platform.containers()
    assert set(containers) == RUNNING
    for service, container in containers.items():
        host = container["HostConfig"]
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"], service
        assert host["SecurityOpt"] == ["no-new-privileges:true"] and not host["Privileged"], service
        assert host["Memory"] and host["PidsLimit"] and host["RestartPolicy"]["Name"] == "unless-stopped", service
        assert container["Config"]["User"].split(":")[0] not in ("", "0", "root"), service


def test_only_web_page_and_service_are_published_and_on_the_loopback(platform: Platform) -> None:
    published = {
        service: bindings
        for service, container in platform.containers().items()
        if (bindings := [one for ports in container["NetworkSettings"]["Ports"].values() for one in ports or ()])
    }
    ports = {"api-server": "SPARK_BERT_PORT", "serve": "SPARK_BERT_SERVE_PORT"}
    assert published == {
        service: [{"HostIp": "127.0.0.1", "HostPort": platform.environment[port]}] for service, port in ports.items()
    }


def test_no_secret_is_seen_by_docker_inspect(platform: Platform, finished: Finished) -> None:
    files = [path for path in platform.secrets.iterdir() if path.name != "login.json"]
    secrets = [path.read_text() for path in files] + [
        json.loads((platform.secrets / "login.json").read_text())["admin"]
    ]
    assert len(secrets) == 6 and all(len(secret) >= 32 for secret in secrets)
    seen = json.dumps([*platform.containers().values(), *finished.stages])
    assert not [secret for secret in secrets if secret in seen]
    assert {path.stat().st_mode & 0o777 for path in platform.secrets.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("service", "reached"), [("scheduler", True), ("api-server", False), ("spark-worker-1", False)]
)
def test_only_the_scheduler_reaches_the_proxy(service: str, reached: bool, platform: Platform) -> None:
    said = platform.python(
        service, "import socket; socket.create_connection(('docker-proxy', 2375), 3); print('reached')"
    )
    assert said == "reached" if reached else "socket.gaierror" in said, said


def test_only_web_page_and_service_reach_out(platform: Platform) -> None:
    def is_open(network: str) -> bool:
        return not json.loads(docker("network", "inspect", network))[0]["Internal"]

    networks = {service: found["NetworkSettings"]["Networks"] for service, found in platform.containers().items()}
    assert {service for service, names in networks.items() if any(map(is_open, names))} == {"api-server", "serve"}


def test_down_keeps_the_data(platform: Platform, finished: Finished) -> None:
    assert platform("down").returncode == 0
    assert not platform.containers()
    runs = platform("run", "--rm", "-T", "airflow-init", "airflow", "dags", "list-runs", "finetune", "--output", "json")
    assert Path(finished.run).name in runs.stdout, runs.stderr
