from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from include.artifacts import Artifact, Manifest, artifact_key
from include.named_experiments import load
from include.runs import Run
from include.stages import STAGES, ExitCode
from tasks.encoder.base_model import BaseModel, recorded
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import load_trained
from tasks.encoder.models import predict_logits
from tasks.runner import run_stage
from tasks.scoring.calibration import fit_temperature
from tasks.scoring.thresholds import tune
from tasks.stages.pipeline.train import stage
from tasks.training.precision import computes_in_bf16
from tests.tasks.contexts import surroundings
from tests.tasks.encoder.samples import label_sets, reviews, tiny_encoder, write_split

ROOT = Path(__file__).parents[5]


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    """An experiment whose artifacts of preprocess and pretrain lie in the run tmp_path/runs/one."""
    training = {"epochs": 1, "batch_size": 8, "evaluations": 1, "ranks": 2}
    encoder = tiny_encoder(tmp_path / "encoder")
    values = {"model": {"name": str(encoder)}, "preprocessing": {"max_length": 32}, "training": training}
    experiment, run, made = load(json.dumps(values)), Run(tmp_path / "runs" / "one"), STAGES["preprocess"]
    part = made.part(experiment)
    key = artifact_key(made.version, part, {}, "")
    with run.store.writing("preprocess", key) as folder:
        write_split(folder / "train", *reviews(60, seed=1))
        write_split(folder / "dev", *reviews(30, seed=2))
        artifact = run.store.commit(folder, Manifest("preprocess", key, made.version, part, {}, "", "test"))
    run.add(artifact, experiment)
    run_stage("pretrain", experiment, run)
    return values


def start(tmp_path: Path, values: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tasks", "train", "--run", str(tmp_path / "runs" / "one")]
    return subprocess.Popen(
        [*command, "--experiment", json.dumps(values)],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def committed(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "artifacts" / "train").glob("[!.]*"))


def test_bad_weights_end_with_exit_code_2_and_leave_nothing(tmp_path: Path, values: dict[str, Any]) -> None:
    file = tmp_path / "encoder" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    process = start(tmp_path, values)
    _, err = process.communicate(timeout=120)
    assert process.returncode == ExitCode.BAD_INPUT
    assert "model.safetensors cannot be read" in err
    assert "Traceback" not in err
    assert committed(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, ExitCode.STOPPED), pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.long)],
)
def test_a_stopped_stage_takes_its_ranks_along_and_goes_on_when_it_is_run_again(
    tmp_path: Path, values: dict[str, Any], number: int, code: int
) -> None:
    values["training"] |= {"epochs": 8, "patience": 0}
    values["runtime"] = {"checkpoint_steps": 5 if number == signal.SIGKILL else 0}
    process = start(tmp_path, values)
    wait_for(tmp_path, "*/step-*" if number == signal.SIGKILL else "*/metrics.jsonl", process)
    family = psutil.Process(process.pid).children(recursive=True)
    ranks = [child for child in family if "tasks.launching.rank" in child.cmdline()]
    assert len(ranks) >= 2
    assert all(rank.environ()["GOMP_SPINCOUNT"] for rank in ranks)  # it must be there before torch is loaded
    record = tmp_path / "runs/one/at-work/train.json"
    work = json.loads(record.read_text())
    assert work["planned_steps"] == 64
    assert (tmp_path / "checkpoints/train" / work["progress"] / "metrics.jsonl").exists()
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert number == signal.SIGKILL or "run the stage again, and it continues from its last checkpoint" in err
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    assert committed(tmp_path) == []
    assert record.exists() == (number == signal.SIGKILL)

    process = start(tmp_path, values)
    out, err = process.communicate(timeout=240)
    assert process.returncode == ExitCode.DONE, err
    assert "continuing from the checkpoint of step" in err
    result = json.loads(out)  # of the only line
    assert (result["metric"], result["ranks"], result["steps"]) == ("accuracy", 2, 64)
    assert result["precision"] == ("bf16" if computes_in_bf16(torch.device("cpu")) else "fp32")
    folder = Path(result["artifact"])
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "metrics.jsonl", "model", "training.json"}
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics if "loss" in line] == list(range(1, 65))
    assert list((tmp_path / "checkpoints" / "train").iterdir()) == [] and not record.exists()
    assert folder.name == work["key"]


def wait_for(tmp_path: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    """Until a file of the training's folder has something in it."""
    folder = tmp_path / "checkpoints" / "train"
    while not any(path.is_dir() or path.stat().st_size for path in folder.glob(pattern)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_a_model_of_several_labels_gets_the_best_thresholds_and_temperature_of_dev_and_what_it_needs_to_know_of_texts(
    tmp_path: Path, artifact: Callable[[Path, str], Artifact]
) -> None:
    for split, rows in (("train", 40), ("dev", 30)):
        write_split(tmp_path / "data" / split, *label_sets(rows))
    (tmp_path / "none").mkdir()
    (tmp_path / "out").mkdir()
    values = {
        "data": {"task": "multi-label", "source": "files", "path": "x", "labels": ["a", "b", "c"]},
        "model": {"name": str(tiny_encoder(tmp_path / "encoder"))},
        "preprocessing": {"max_length": 32, "clean": ["html", "lowercase"]},
        "training": {"epochs": 1, "batch_size": 8, "ranks": 1},
    }  # fmt: skip
    inputs = {
        "preprocess": artifact(tmp_path / "data", "preprocess"),
        "pretrain": artifact(tmp_path / "none", "pretrain"),
    }
    outcome = stage.run(
        surroundings(load(json.dumps(values)), Run(tmp_path / "runs" / "one"), inputs, tmp_path / "out"), ""
    )
    assert outcome.result["metric"] == "f1_micro"
    model, dev = load_trained(tmp_path / "out" / "model"), TokenTable.open(tmp_path / "data" / "dev")
    assert (model.spec.kind, model.spec.label_names) == ("multilabel", ("a", "b", "c"))
    logits, temperature = predict_logits(model, dev), model.spec.temperature
    probabilities = torch.from_numpy(logits).double().sigmoid().numpy()
    assert model.spec.thresholds == pytest.approx(tune(dev.labels, probabilities).tolist())
    assert temperature == pytest.approx(fit_temperature("multilabel", dev.labels, logits * temperature), rel=1e-4)
    assert abs(temperature - 1) > 0.01
    assert (model.spec.cleaning, model.spec.texts) == (("html", "lowercase"), 1)
    assert recorded(tmp_path / "out" / "model") == BaseModel("encoder", "", "")
