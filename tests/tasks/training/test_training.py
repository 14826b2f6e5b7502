from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from include.stages import BadInput, Transient
from tasks.encoder.batching import TokenTable
from tasks.encoder.inference import predict_logits
from tasks.encoder.loading import load_trained
from tasks.launching.launch import launch
from tasks.scoring.metrics import main_metric
from tasks.training.job import Job
from tests.tasks.launching.jobs import lines, losses, make_job


def weights(output: Path) -> dict[str, torch.Tensor]:
    return load_file(output / "model" / "model.safetensors")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trainings")


@pytest.fixture(scope="module")
def one(root: Path) -> Job:
    """One epoch on one rank; 60 rows in batches of 7 and 8, so that two ranks get uneven shares."""
    job = make_job(root, epochs=1, evaluations=1)
    launch(job)
    return job


def test_a_training_leaves_model_metrics_and_figures(one: Job) -> None:
    summary = json.loads((one.output / "training.json").read_text())
    assert (summary["steps"], summary["best_step"], summary["ranks"]) == (8, 8, 1)
    assert summary["rows_per_second"] > 0
    first, *_, dev = lines(one.output)
    assert set(first) == {
        "step", "epoch", "loss", "learning_rate", "grad_norm", "rows_per_second", "padding_share", "memory",
        "bytes_embeddings", "bytes_matrices", "bytes_rest",
    }  # fmt: skip
    assert [line["step"] for line in lines(one.output)] == [*range(1, 9), 8]
    table = TokenTable.open(one.data / "dev")
    logits = predict_logits(load_trained(one.output / "model"), table)
    again = main_metric(one.experiment.task, table.labels, logits)
    assert again == summary["best"] == dev["accuracy"]


def test_the_same_seed_gives_the_same_losses(root: Path, one: Job) -> None:
    again = make_job(root, epochs=1, evaluations=1)
    launch(again)
    assert losses(again.output) == losses(one.output)
    other = make_job(root, epochs=1, evaluations=1, seed=2)
    launch(other)
    assert losses(other.output) != losses(one.output)


def test_two_ranks_on_half_a_batch_each_equal_one_rank_on_the_whole(
    root: Path, one: Job, capfd: pytest.CaptureFixture[str]
) -> None:
    two = make_job(root, epochs=1, evaluations=1, ranks=2)
    launch(two)
    np.testing.assert_allclose(losses(two.output), losses(one.output), rtol=1e-5)
    alone, shared = weights(one.output), weights(two.output)
    for name, values in alone.items():
        torch.testing.assert_close(shared[name], values, atol=2e-5, rtol=1e-4)
    assert lines(two.output)[-1]["accuracy"] == lines(one.output)[-1]["accuracy"]
    captured = capfd.readouterr()
    assert captured.out == ""  # stdout is the stage's
    assert "dev accuracy" in captured.err


@pytest.mark.long
def test_fp16_on_the_wire_stays_close(root: Path, one: Job) -> None:
    two = make_job(root, {"compression": "fp16"}, epochs=1, evaluations=1, ranks=2)
    launch(two)
    np.testing.assert_allclose(losses(two.output), losses(one.output), rtol=1e-3)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_half_precisions_learn(root: Path, precision: str) -> None:
    job = make_job(root, epochs=12, evaluations=1, patience=0, learning_rate=3e-3, precision=precision)
    launch(job)
    learned = losses(job.output)
    assert np.mean(learned[-5:]) < 0.5 * np.mean(learned[:5])


def test_patience_ends_a_training_that_does_not_get_better(root: Path) -> None:
    job = make_job(root, epochs=20, evaluations=1, patience=2, learning_rate=1e-12)
    launch(job)
    summary = json.loads((job.output / "training.json").read_text())
    assert summary["steps"] == 3 * 8
    assert summary["best_step"] == 8
    assert summary["planned_steps"] == 20 * 8


@pytest.mark.long
def test_a_batch_larger_than_the_data_is_refused_by_ranks_too(root: Path) -> None:
    for ranks in (1, 2):
        with pytest.raises(BadInput, match="batch_size is 64, but only 60 rows are left to train on"):
            launch(make_job(root, batch_size=64, ranks=ranks))


def test_a_lost_loss_is_told_with_its_step_and_remedy(tmp_path: Path) -> None:
    job = make_job(tmp_path, epochs=10)
    file = job.encoder / "model.safetensors"
    poisoned = load_file(file)
    poisoned["embeddings.LayerNorm.weight"][0] = torch.nan
    save_file(poisoned, file)
    with pytest.raises(BadInput, match=r"not finite since step 1: lower training.learning_rate"):
        launch(job)
    assert not (job.output / "training.json").exists()


def test_a_killed_rank_ends_the_run_within_a_minute(root: Path) -> None:
    job = make_job(root, epochs=100, evaluations=1, ranks=2, patience=0)
    ended: dict[str, Any] = {}

    def run() -> None:
        try:
            launch(job)
        except Transient as error:
            ended["error"] = error

    others = psutil.Process().children(recursive=True)  # Spark's, where other tests have started it
    thread = threading.Thread(target=run)
    thread.start()
    while not (job.output / "metrics.jsonl").exists() or not losses(job.output):
        time.sleep(0.1)
    processes = [process for process in psutil.Process().children(recursive=True) if process not in others]
    victim = next(process for process in processes if is_rank(process, 1))
    started = time.monotonic()
    victim.kill()
    thread.join(60)
    assert time.monotonic() - started < 60
    assert "rank 1 was lost (exit code 137)" in str(ended["error"])
    assert not (job.output / "training.json").exists()
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert alive == []


def is_rank(process: psutil.Process, rank: int) -> bool:
    command = process.cmdline()
    return "python" in command[0] and "horovod.runner.run_task" in command and \
        process.environ().get("HOROVOD_RANK") == str(rank)  # fmt: skip
