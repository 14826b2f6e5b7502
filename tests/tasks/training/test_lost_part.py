"""A rank is killed that has a part of the model: the others end, nothing stays behind, and the training can go on."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.links import LOCAL
from benchmarks.ranks import rendezvous
from include.fields.ranks import Parallel
from include.stages import ExitCode, Transient
from tasks.launching.launch import LIMITS, ROOT, launch
from tasks.launching.rank import JOB
from tasks.training.job import Job, checkpoints
from tests.tasks.launching.jobs import losses, make_job
from tests.tasks.launching.ranks import is_rank

pytestmark = pytest.mark.long

#: Their ranks, and how these divide the model.
MESHES: dict[str, tuple[int, dict[str, int]]] = {
    "tensor": (2, {"tensor": 2}), "pipeline": (2, {"pipeline": 2}), "shard": (2, {"shard": 2}),
    "copies of shard": (4, {"shard": 2}),
}  # fmt: skip
#: Seconds in which the others end. Those that wait for one another give up after the 30 seconds of LIMITS.
DEADLINE = 60


def job_of(root: Path, ranks: int, parallel: dict[str, int], **training: Any) -> Job:
    plain = {"sparse_embeddings": False, "fused_layers": False, "patience": 0, "evaluations": 1}
    job = make_job(root, ranks=ranks, **{**plain, **training})
    runtime = job.experiment.runtime.model_copy(update={"checkpoint_steps": 8, "lost_rank": "fail"})
    changes = {"parallel": Parallel(**parallel), "runtime": runtime}
    return dataclasses.replace(job, experiment=job.experiment.model_copy(update=changes))


@pytest.mark.parametrize("mesh", MESHES)
def test_a_lost_rank_ends_the_others_and_the_next_try_goes_on(
    mesh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    job, killed = job_of(tmp_path, *MESHES[mesh], epochs=16), list[float]()

    def kill() -> None:
        while max(checkpoints(job.folder), default=0) < 8:
            time.sleep(0.02)
        next(process for process in psutil.Process().children(recursive=True) if is_rank(process, 1)).kill()
        killed.append(time.monotonic())

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(Transient, match=r"rank 1 was lost \(exit code 137\): run the stage again"):
        launch(job)
    assert time.monotonic() - killed[0] < DEADLINE
    assert not list(scratch.iterdir())
    assert not [process for process in psutil.Process().children(recursive=True) if "python" in process.name()]
    assert not (job.output / "training.json").exists()
    launch(job)
    assert json.loads((job.output / "training.json").read_text())["steps"] == len(losses(job.output)) == 128
    assert not list(scratch.iterdir())


def test_every_rank_that_another_one_has_left_ends_by_itself(tmp_path: Path) -> None:
    """Without the driver, which would end them all."""
    job = job_of(tmp_path, 4, {"tensor": 2, "pipeline": 2}, epochs=100)
    job.write(tmp_path / JOB)
    with ExitStack() as stack:
        environments = stack.enter_context(rendezvous([LOCAL] * 4))
        ranks = [stack.enter_context(_rank(tmp_path, environment)) for environment in environments]
        try:
            wait_for(job.folder / "metrics.jsonl", ranks)
            ranks[3].kill()
            ended = [rank.wait(DEADLINE) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    assert ended == [ExitCode.TRANSIENT] * 3 + [-9], "".join(log.read_text() for log in tmp_path.glob("*.log"))
    assert not list(tmp_path.glob("rank-*.json"))  # which would hold an error of a rank itself


def _rank(folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tasks.launching.rank", str(folder)]
    with (folder / f"{environment['HOROVOD_RANK']}.log").open("wb") as log:
        told = {**os.environ, **environment, **LIMITS, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, cwd=ROOT, env=told, stdout=log, stderr=subprocess.STDOUT)


def wait_for(file: Path, ranks: list[subprocess.Popen[bytes]]) -> None:
    while not file.exists():
        assert all(rank.poll() is None for rank in ranks)
        time.sleep(0.02)
