from __future__ import annotations

import dataclasses
import gzip
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
from include.tracing import Origin, recording
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import load_trained
from tasks.encoder.models import predict_logits
from tasks.launching.launch import _keep_profile, launch
from tasks.scoring.metrics import all_metrics
from tasks.training.job import Job
from tasks.training.meter import middle
from tests.spans import attributes, read_spans
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
    with recording(root / "one.jsonl", Origin("0a" * 16, "", {}), "train"):
        launch(job)
    return job


def phases(spans: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The spans below that of a training, by name."""
    (training,) = [span for span in spans if span["name"] == "training"]
    return {span["name"]: span for span in spans if span["parentSpanId"] == training["spanId"]}


def profiled(kind: str, job: Job) -> Job:
    """The job with a profile."""
    runtime = job.experiment.runtime.model_copy(update={"profile": kind})
    return dataclasses.replace(job, experiment=job.experiment.model_copy(update={"runtime": runtime}))


def test_a_profile_shows_steps_in_the_middle_and_changes_nothing(root: Path, one: Job, tmp_path: Path) -> None:
    job = profiled("torch", make_job(root, epochs=1, evaluations=1))
    launch(job, profiles=tmp_path / "profiles" / "train")
    assert losses(job.output) == losses(one.output)
    assert not list(job.output.rglob("*.gz"))
    (file,) = (tmp_path / "profiles" / "train").iterdir()
    with gzip.open(file) as content:
        events = json.load(content)["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    steps = {name for name in names if name.startswith("ProfilerStep")}
    assert steps == {f"ProfilerStep#{number}" for number in (1, 2, 3, 4, 5)}  # of eight, counted from 0
    assert {"aten::addmm", "aten::embedding", "autograd::engine::evaluate_function: AddmmBackward0"} <= set(names)


@pytest.mark.parametrize(("steps", "expected"), [(1, (0, 1)), (4, (0, 4)), (8, (1, 5)), (1000, (497, 5)), (0, (0, 1))])
def test_the_middle_of_a_training(steps: int, expected: tuple[int, int]) -> None:
    assert middle(steps) == expected


def test_one_rank_alone_has_no_timeline(root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    launch(profiled("horovod", make_job(root, epochs=1, evaluations=1)), profiles=tmp_path / "profiles" / "train")
    assert "runtime.profile horovod has no effect" in caplog.text and list(tmp_path.iterdir()) == []


def test_a_profile_that_cannot_be_kept_fails_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "torch.json.gz").touch()
    (tmp_path / "profiles").write_text("a file in the place of the folder")
    _keep_profile(tmp_path / "torch.json.gz", tmp_path / "profiles" / "train")
    assert f"the profile cannot be kept in {tmp_path / 'profiles' / 'train'}: " in caplog.text


def test_each_phase_of_a_training_is_a_span(root: Path, one: Job) -> None:
    spans = read_spans(root / "one.jsonl")
    (training,) = [span for span in spans if span["name"] == "training"]
    assert attributes(training) == {"rank": 0, "ranks": 1} and training["parentSpanId"] == spans[-1]["spanId"]
    found = phases(spans)
    assert set(found) == {"data", "forward", "backward", "exchange", "optimizer", "evaluation"}
    begin, end = (int(training[f"{name}TimeUnixNano"]) for name in ("start", "end"))
    slack = 5_000_000  # of one clock against another
    for span in found.values():
        values = attributes(span)
        assert begin - slack <= int(span["startTimeUnixNano"]) < int(span["endTimeUnixNano"]) <= end + slack
        assert (values["steps"], values["rows"]) == (8, 60) and values["seconds"] > 0
    assert attributes(found["forward"])["count"] == 8 and attributes(found["evaluation"])["count"] == 1
    total = sum(attributes(span)["seconds"] for span in found.values())
    assert 0.5 * (end - begin) < total * 1e9 < end - begin


def test_a_training_leaves_model_metrics_and_figures(one: Job) -> None:
    summary = json.loads((one.output / "training.json").read_text())
    assert (summary["steps"], summary["best_step"], summary["ranks"]) == (8, 8, 1)
    assert summary["rows_per_second"] > 0
    first, *_, dev = lines(one.output)
    assert set(first) == {
        "time", "step", "epoch", "loss", "learning_rate", "grad_norm", "rows_per_second", "padding_share", "memory",
        "bytes_embeddings", "bytes_matrices", "bytes_rest",
    }  # fmt: skip
    assert [line["step"] for line in lines(one.output)] == [*range(1, 9), 8]
    table = TokenTable.open(one.data / "dev")
    logits = predict_logits(load_trained(one.output / "model"), table)
    again = all_metrics(one.experiment.task, table.labels, logits)[one.experiment.task.metric]
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
    two = profiled("horovod", make_job(root, epochs=1, evaluations=1, ranks=2))
    with recording(root / "two.jsonl", Origin("0a" * 16, "", {}), "train"):
        launch(two, profiles=root / "profiles" / "train")
    np.testing.assert_allclose(losses(two.output), losses(one.output), rtol=1e-5)
    alone, shared = weights(one.output), weights(two.output)
    for name, values in alone.items():
        torch.testing.assert_close(shared[name], values, atol=2e-5, rtol=1e-4)
    assert lines(two.output)[-1]["accuracy"] == lines(one.output)[-1]["accuracy"]
    captured = capfd.readouterr()
    assert captured.out == ""  # stdout is the stage's
    assert "dev accuracy" in captured.err
    assert "profile horovod has no effect, because the ranks share memory" in captured.err
    assert not (root / "profiles").exists()
    spans = read_spans(root / "two.jsonl")
    ranks = {span["name"]: span for span in spans if span["parentSpanId"] == spans[-1]["spanId"]}
    assert set(ranks) == {"rank 0", "rank 1"} and {span["traceId"] for span in spans} == {"0a" * 16}
    for rank in (0, 1):
        assert {"data", "exchange"} <= set(
            phases([span for span in spans if _below(span, ranks[f"rank {rank}"], spans)])
        )


def _below(span: dict[str, Any], above: dict[str, Any], spans: list[dict[str, Any]]) -> bool:
    parents = [one for one in spans if one["spanId"] == span["parentSpanId"]]
    return span is above or any(_below(parent, above, spans) for parent in parents)


def test_fp16_on_the_wire_stays_close_and_horovod_shows_it_at_the_cycle_that_the_user_sets(
    root: Path, one: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "30")
    two = profiled("horovod", make_job(root, {"compression": "fp16"}, epochs=1, evaluations=1, ranks=2))
    launch(two, profiles=tmp_path)
    np.testing.assert_allclose(losses(two.output), losses(one.output), rtol=1e-3)
    timeline = json.loads((tmp_path / "horovod.json").read_text())
    begun = [event["name"] for event in timeline if event["ph"] == "B"]
    assert begun.count("NEGOTIATE_ALLREDUCE") and begun.count("GLOO_ALLREDUCE")
    cycles = [event["ts"] for event in timeline if event.get("name") == "CYCLE_START"]
    assert len(cycles) > 1 and np.diff(cycles).min() > 25_000  # microseconds


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
    return "python" in command[0] and "tasks.launching.rank" in command and \
        process.environ().get("HOROVOD_RANK") == str(rank)  # fmt: skip
