"""Two ranks that exchange all files through an S3 server make what two that share a folder make, to the bit."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from include.stages import BadInput
from tasks.launching.launch import LIMITS, ROOT, UNFUSED, launch
from tasks.launching.mirror import shared_with_ranks
from tasks.launching.rank import JOB, STOP
from tasks.staging import Staging, below
from tasks.training.job import Job, checkpoints
from tests.tasks.launching.apart import LOST_AT, STOPPED_AT
from tests.tasks.launching.jobs import losses, make_job


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A training of two ranks that share a folder, and its result."""
    # Without compression, ranks of one host sum gradients in shared memory, and not in the order of Gloo.
    job = make_job(tmp_path_factory.mktemp("reference"), {"compression": "topk"}, epochs=3, evaluations=1, ranks=2)
    runtime = job.experiment.runtime.model_copy(update={"checkpoint_steps": 4})
    job = replace(job, experiment=job.experiment.model_copy(update={"runtime": runtime}))
    launch(job)
    return job


def again(job: Job, root: Path) -> Job:
    """The same training, with folders of its own for what it makes."""
    (root / "output").mkdir()
    return replace(job, output=root / "output", checkpoints=root / "checkpoints")


def train_apart(job: Job, folder: Path, bucket: str, **environment: str) -> int:
    """Train with ranks that have no folder in common; return the exit code of the one that was lost, or 0."""
    folder.mkdir(exist_ok=True)
    job.write(folder / JOB)
    url = below(bucket, secrets.token_hex(4))
    command = [sys.executable, "-m", "tests.tasks.launching.apart", str(folder), url]
    limits = {**os.environ, **LIMITS, **UNFUSED, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, env=limits, timeout=300, check=False).returncode


def check_equal(job: Job, reference: Job) -> None:
    np.testing.assert_array_equal(losses(job.output), losses(reference.output))
    names = {file.relative_to(reference.output) for file in (reference.output / "model").rglob("*") if file.is_file()}
    assert names == {file.relative_to(job.output) for file in (job.output / "model").rglob("*") if file.is_file()}
    for name in names:
        assert (job.output / name).read_bytes() == (reference.output / name).read_bytes()


def test_a_lost_rank_is_followed_by_others_elsewhere_with_the_same_losses(
    reference: Job, bucket: str, tmp_path: Path
) -> None:
    job = again(reference, tmp_path)
    assert train_apart(job, tmp_path / "ranks", bucket, **{LOST_AT: "10"}) == 128 + 9
    assert max(checkpoints(job.folder)) == 8
    assert not (job.output / "training.json").exists()
    assert train_apart(job, tmp_path / "elsewhere", bucket) == 0
    check_equal(job, reference)
    assert max(checkpoints(job.folder)) == 24


def test_ranks_are_told_to_stop_and_continue(reference: Job, bucket: str, tmp_path: Path) -> None:
    job, folder = again(reference, tmp_path), tmp_path / "ranks"

    def stop() -> None:
        while not (job.folder / "metrics.jsonl").exists():  # which is seen while the ranks train
            time.sleep(0.1)
        (folder / STOP).touch()

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    assert train_apart(job, folder, bucket, **{STOPPED_AT: "10"}) == 0
    thread.join()
    assert 10 in checkpoints(job.folder)
    assert not (job.output / "training.json").exists()
    (folder / STOP).unlink()
    assert train_apart(job, folder, bucket) == 0
    check_equal(job, reference)


def test_ranks_that_divide_a_model_are_refused(reference: Job, bucket: str, tmp_path: Path) -> None:
    parallel = reference.experiment.parallel.model_copy(update={"shard": 2})
    job = replace(reference, experiment=reference.experiment.model_copy(update={"parallel": parallel}))
    refused = pytest.raises(BadInput, match=r"parallel\.tensor, pipeline and shard.* SPARK_BERT_STAGING they have none")
    with refused, shared_with_ranks(Staging(bucket), job, tmp_path):
        pass
