"""`make run RUNTIME=docker`: every stage a walled-in container, and the same artifacts as from processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from include.stages import PIPELINE
from tests.e2e.docker.watch import Container, remaining, watched
from tests.e2e.docker.worker import first_record
from tests.e2e.make_run import ROOT, SLICE, command, make_run, sets
from tests.e2e.server import wait_for

#: The stages that are computed as processes too, and whose files must be the same to the byte.
COMPARED = ("validate", "preprocess")


class Finished(NamedTuple):
    home: Path
    containers: list[Container]


@pytest.fixture(scope="module")
def finished(images: object, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run whose stages were containers."""
    home = tmp_path_factory.mktemp("docker-home")
    with watched(home) as containers:
        code, output = make_run(home, *SLICE, SPARK_BERT_RUNTIME="docker")
    assert code == 0, output
    return Finished(home, containers)


@pytest.fixture(scope="module")
def process_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the first stages have run as processes."""
    home = tmp_path_factory.mktemp("process-home")
    for stage in COMPARED:
        command = [".venv/tasks/bin/python", "-m", "tasks", stage, *sets(*SLICE), "--run", str(home / "runs/processes")]
        subprocess.run(command, cwd=ROOT, check=True)
    return home


def manifests(home: Path) -> dict[str, dict[str, Any]]:
    """Stage to manifest, of the home's first run."""
    stages = json.loads(first_record(home).read_text())["stages"]
    return {stage: json.loads((home / entry["path"] / "manifest.json").read_text()) for stage, entry in stages.items()}


def data_files(manifest: dict[str, Any]) -> dict[str, Any]:
    """Size and sha256 of its files, but for Data Docs: they say when they were written, in their names too."""
    return {name: file for name, file in manifest["files"].items() if not name.startswith("data_docs/")}


def agree(containers: dict[str, Any], processes: dict[str, Any]) -> None:
    """The same inputs have made the same artifact."""
    for field in ("key", "version", "part", "inputs", "fingerprint", "exit_code"):
        assert containers[field] == processes[field], field


def test_containers_read_the_data_as_processes_do(process_home: Path, finished: Finished) -> None:
    processes, containers = manifests(process_home), manifests(finished.home)
    assert list(containers) == [*PIPELINE, "track"] and list(processes) == [*COMPARED]
    for stage in COMPARED:
        agree(containers[stage], processes[stage])
        assert data_files(containers[stage]) == data_files(processes[stage])
    assert containers["evaluate"]["result"]["metrics"]["accuracy"] > 0.6


@pytest.mark.long
def test_containers_make_what_processes_make(home: Path, finished: Finished) -> None:
    processes, containers = manifests(home), manifests(finished.home)
    assert list(containers) == list(processes)
    for stage in PIPELINE:
        agree(containers[stage], processes[stage])
    ours, theirs = (manifest["evaluate"]["result"]["metrics"] for manifest in (containers, processes))
    assert ours == pytest.approx(theirs, abs=0.02)


def test_every_stage_was_walled_in(finished: Finished) -> None:
    stages = [container["Config"]["Labels"]["spark-bert.stage"] for container in finished.containers]
    assert stages == [*PIPELINE, "track"]
    for container in finished.containers:
        host, config = container["HostConfig"], container["Config"]
        assert config["User"] not in ("", "0", "root") and not config["User"].startswith("0:")
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["CapAdd"] and not host["Privileged"]
        assert host["SecurityOpt"] == ["no-new-privileges:true"]
        assert host["NetworkMode"] == "none" and host["PidMode"] == "" and host["IpcMode"] == "private"
        assert host["Memory"] == host["MemorySwap"] > 0 and host["NanoCpus"] > 0 and host["PidsLimit"] > 0
        assert host["Init"] and list(host["Tmpfs"]) == ["/tmp"]
        assert not [mount for mount in host["Mounts"] if "docker.sock" in mount["Source"]]
        writable = {Path(mount["Target"]) for mount in host["Mounts"] if not mount.get("ReadOnly")}
        database = {finished.home / "mlflow"} if config["Labels"]["spark-bert.stage"] == "track" else set()
        assert writable == {finished.home / name for name in ("artifacts", "checkpoints", "runs")} | database


def test_the_log_is_airflows_and_no_container_is_left(finished: Finished) -> None:
    (log,) = (file.read_text() for file in finished.home.glob("airflow/logs/*/*/log.txt"))
    assert "INFO tasks.training.metrics_logger: step" in log
    assert " ERROR tasks" not in log
    assert remaining(finished.home) == []


def test_the_record_names_the_dag_run(finished: Finished) -> None:
    (record,) = (json.loads(file.read_text()) for file in finished.home.glob("runs/*/run.json"))
    assert record["dag_id"] == "finetune" and record["run_id"].startswith("manual__")


def test_what_stages_wrote_is_not_roots(finished: Finished) -> None:
    assert {path.stat().st_uid for path in (finished.home / "artifacts").rglob("*")} & {0} == set()


def test_an_interrupt_stops_the_stage_and_leaves_no_container(images: object, tmp_path: Path) -> None:
    """However often the user insists: the first interrupt is carried through."""
    settings = {"SPARK_BERT_HOME": str(tmp_path), "SPARK_BERT_RUNTIME": "docker"}
    run = subprocess.Popen(command(*SLICE), env=os.environ | settings, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: remaining(tmp_path), seconds=120)
    for _ in range(3):
        run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 143 and "run the same command again to go on" in said
    assert remaining(tmp_path) == []
