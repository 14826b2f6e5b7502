"""Ranks in the executors of a real Spark cluster, whose machines have a folder in common or none."""

from __future__ import annotations

import dataclasses
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from include.stages import Transient
from tasks.launching.launch import LIMITS, launch
from tasks.training.job import Job
from tests.tasks.cluster import Cluster, running, wait_for
from tests.tasks.launching.jobs import losses, make_job

RANK = "horovod.spark.task.gloo_exec_fn"


@pytest.fixture(autouse=True)
def one_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image: executors find the same python."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of two workers, one core each, which have the files of this machine."""
    with running(tmp_path_factory.mktemp("cluster"), separate=False) as cluster:
        yield cluster.master


def on_spark(job: Job, master: str) -> Job:
    values = {"ranks_on": "spark", "spark_master": master, "checkpoint_steps": 4, "lost_rank": "restart"}
    changed = job.experiment.runtime.model_copy(update=values)
    return dataclasses.replace(job, experiment=job.experiment.model_copy(update={"runtime": changed}))


@pytest.mark.long
def test_ranks_in_executors_equal_local_ones_even_after_a_loss(
    master: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    here = make_job(tmp_path, epochs=3, evaluations=1, ranks=2)
    launch(here)
    there = on_spark(make_job(tmp_path, epochs=3, evaluations=1, ranks=2), master)
    killed: list[psutil.Process] = []

    def kill() -> None:
        wait_for(lambda: any(there.folder.glob("step-*")))
        killed.extend(process for process in psutil.process_iter() if is_rank(process, 1))
        killed[0].kill()

    thread = threading.Thread(target=kill)
    thread.start()
    launch(there)
    thread.join()
    assert "rank 1 was lost (exit code 137): training starts again from step" in caplog.text
    assert capfd.readouterr().out == ""  # stdout is the stage's
    np.testing.assert_array_equal(losses(there.output), losses(here.output))
    assert not [process for process in psutil.process_iter() if is_rank(process, 0) or is_rank(process, 1)]


LAUNCH = """
import logging, sys
from pathlib import Path
from tasks.launching.launch import launch
from tasks.training.job import Job

logging.basicConfig()
launch(Job.read(Path(sys.argv[1])))
"""


def test_ranks_on_machines_without_a_common_folder_equal_local_ones_even_after_a_loss(
    cluster: Cluster, tmp_path: Path
) -> None:
    # Without compression, ranks of one host sum gradients in shared memory, and not in the order of Gloo.
    here = make_job(tmp_path, {"compression": "topk"}, epochs=3, evaluations=1, ranks=2)
    launch(here)
    there = on_spark(make_job(tmp_path, {"compression": "topk"}, epochs=3, evaluations=1, ranks=2), cluster.master)
    there.write(tmp_path / "job.json")
    driver = cluster.start([sys.executable, "-c", LAUNCH, str(tmp_path / "job.json")])
    cluster.kill_executor(r"step-8/rank-\d")
    output, errors = driver.communicate()
    wait_for(lambda: not cluster.executors())  # those of the next test are others
    assert driver.returncode == 0, errors
    assert re.search(r"training starts again from step [48],", errors)
    assert output == ""  # stdout is the stage's
    np.testing.assert_array_equal(losses(there.output), losses(here.output))
    for file in (here.output / "model").iterdir():
        assert (there.output / "model" / file.name).read_bytes() == file.read_bytes()


def is_rank(process: psutil.Process, rank: int) -> bool:
    try:
        command = process.cmdline()
        return command[0] == sys.executable and RANK in command and process.environ()["HOROVOD_RANK"] == str(rank)
    except (psutil.Error, IndexError):
        return False


@pytest.mark.long
def test_too_few_cores_are_said(master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "HOROVOD_SPARK_START_TIMEOUT", "20")
    job = on_spark(make_job(tmp_path, ranks=4), master)
    with pytest.raises(Transient, match="did not run 4 ranks at once in time: give it more cores"):
        launch(job)
