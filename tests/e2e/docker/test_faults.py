"""What may go wrong around a stage's container, with a real engine: killed workers and containers, limits, disks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from spark_bert.deployment.places import run_folder
from spark_bert.operators.docker import DockerStageOperator
from spark_bert.operators.failures import RETRIES
from tests.e2e.docker.watch import Container, inspect, remaining, watched
from tests.e2e.docker.worker import SLICE, Worker, first_record
from tests.e2e.server import Call, airflow_ui, trigger, wait_for

pytestmark = pytest.mark.long


@pytest.fixture
def deployment(images: object, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home where the data stages of the run `faults` are done."""
    monkeypatch.setenv("SPARK_BERT_HOME", str(home))
    run = run_folder("finetune", "faults")
    run.mkdir(parents=True, exist_ok=True)
    shutil.copy(first_record(home), run)
    yield home
    for container in remaining(home):  # of a test that failed, or of the run that was not waited for
        docker("rm", "--force", container)


def test_a_memory_limit_too_small_is_named(deployment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Far too small: with nearly enough the kernel reads torch's pages from the disk again and again, and kills nothing.
    monkeypatch.setenv("SPARK_BERT_LIMITS", '{"train": {"memory": "64m"}}')
    train = Worker("train", **{"training.seed": 11})
    with pytest.raises(AirflowFailException) as error:
        train()
    assert "train ran out of memory: its container's limit is 64 MiB" in str(error.value)
    assert """SPARK_BERT_LIMITS='{"train": {"memory": "128m"}}'""" in str(error.value)
    assert remaining(deployment) == []


def test_a_missing_image_is_not_tried_again(deployment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_TAG", "never-built")
    with pytest.raises(AirflowFailException, match="no image spark-bert/data:never-built: build it with `make images`"):
        Worker("gate")()


def test_bad_input_keeps_its_words(deployment: Path) -> None:
    with pytest.raises(AirflowFailException, match=r"validate: data\.path /nowhere is not a folder: name the one that"):
        Worker("validate", **{"data.path": "/nowhere", "data.source": "glue", "data.task": "SST-2"})()


@pytest.fixture
def small_disk(images: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home on a file system of one megabyte."""
    home = tmp_path / "small"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(home)], check=True)
    monkeypatch.setenv("SPARK_BERT_HOME", str(home))
    try:
        yield home
    finally:
        subprocess.run(["umount", str(home)], check=True)


def test_a_full_disk_is_tried_again_and_leaves_nothing_half_written(small_disk: Path) -> None:
    with pytest.raises(AirflowException, match=f"no space is left below {small_disk}/artifacts: free some") as error:
        Worker("validate")()
    assert not isinstance(error.value, AirflowFailException)
    assert [path for path in (small_disk / "artifacts").rglob("*") if path.is_file()] == []


def test_a_cleared_task_starts_afresh(deployment: Path) -> None:
    """An earlier clear's container has ended well, and its result was never taken: it is not believed."""
    gate = Worker("gate", **{"gate.accuracy": 0.6})
    with watched(deployment) as containers:
        left_by_a_lost_worker(gate, deployment)
        assert gate(clears=1)["passed"] is True
    assert [generation(container) for container in containers] == ["2.0", "2.1"]
    assert remaining(deployment) == []


def test_a_result_that_a_lost_worker_left_is_taken(deployment: Path) -> None:
    gate = Worker("gate", **{"gate.accuracy": 0.6})
    with watched(deployment) as containers:
        left_by_a_lost_worker(gate, deployment)
        assert gate()["passed"] is True
    assert [generation(container) for container in containers] == ["2.0"]
    assert remaining(deployment) == []


def left_by_a_lost_worker(worker: Worker, home: Path) -> None:
    """Start the stage, lose the worker as soon as it follows the log, and wait for the container's end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DockerStageOperator, "_follow", lost)
        with pytest.raises(KeyboardInterrupt):
            worker()
    (container,) = remaining(home)
    wait_for(lambda: inspect(container)["State"]["Status"] == "exited", seconds=60)


def lost(operator: DockerStageOperator) -> str:
    raise KeyboardInterrupt


def generation(container: Container) -> str:
    return str(container["Config"]["Labels"]["spark-bert.generation"])


@pytest.fixture
def call(deployment: Path) -> Iterator[Call]:
    with airflow_ui(deployment, SPARK_BERT_RUNTIME="docker") as call:
        yield call


def test_a_training_outlives_its_worker_and_its_own_death(call: Call, deployment: Path) -> None:
    """One run through the scheduler: worker killed, then the container killed, then the task cleared."""
    conf = {**SLICE, "training.epochs": 2, "training.seed": 7, "training.patience": 0, "runtime.checkpoint_steps": 5}
    with watched(deployment) as containers:
        run = trigger(call, conf)
        first = wait_for(lambda: training(containers))
        wait_for(lambda: checkpoints(deployment))
        kill_worker(call, run)
        docker("pause", first)  # it shall not end meanwhile
        wait_for(lambda: logged(call, run, 2, "attaching to the container"))
        assert training(containers) == first

        docker("unpause", first)
        docker("kill", first)
        wait_for(lambda: train(call, run)["state"] == "success")
        assert train(call, run)["try_number"] == 3
        assert logged(call, run, 3, "continuing from the checkpoint of step")

        second = training(containers)
        clear = {"dry_run": False, "dag_run_id": run.rpartition("/")[2], "task_ids": ["train"], "only_failed": False}
        call("POST", "/api/v2/dags/finetune/clearTaskInstances", clear)
        wait_for(lambda: training(containers) != second)
    trainings = [one for one in containers if one["Config"]["Labels"]["spark-bert.task"] == "train"]
    assert [generation(one) for one in trainings] == [f"{RETRIES}.0", f"{RETRIES}.0", f"{3 + RETRIES}.1"]


def docker(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], check=True, stdout=subprocess.DEVNULL)


def train(call: Call, run: str) -> dict[str, Any]:
    """The task as Airflow sees it."""
    found: dict[str, Any] = call("GET", f"{run}/taskInstances/train")
    return found


def training(containers: list[Container]) -> str:
    """The id of the newest container that trains, "" when there is none yet."""
    return next(
        (one["Id"] for one in reversed(containers) if one["Config"]["Labels"]["spark-bert.task"] == "train"), ""
    )


def checkpoints(home: Path) -> list[Path]:
    return [*home.glob("checkpoints/train/*/*/manifest.json")]


def logged(call: Call, run: str, attempt: int, words: str) -> bool:
    """Whether the try of train has said it; there is no log before it has begun."""
    if train(call, run)["try_number"] < attempt:
        return False
    return words in str(call("GET", f"{run}/taskInstances/train/logs/{attempt}?full_content=true"))


def kill_worker(call: Call, run: str) -> None:
    """SIGKILL to the process that follows the container, so that it can neither stop nor remove it."""
    title = f"airflow worker -- {train(call, run)['id']}"
    (worker,) = [process for process in psutil.process_iter(["cmdline"]) if title in (process.info["cmdline"] or [])]
    worker.kill()
