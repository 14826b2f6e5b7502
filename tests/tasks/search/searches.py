"""Small searches for tests and benchmarks: a tiny encoder, rows of one's own, and a process that is killed."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from include.named_experiments import build
from include.runs import Run
from tasks.launching.launch import ROOT
from tasks.runner import run_stage
from tests.tasks.encoder.samples import reviews, tiny_encoder

#: No values of the space are the experiment's, except where a test sets them.
SPACE: dict[str, Any] = {
    "training.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    "training.batch_size": [8, 16],
    "training.epochs": {"low": 1, "high": 3, "step": 1},
}


def values(folder: Path, **search: Any) -> dict[str, Any]:
    """The values of an experiment on rows in a folder, which are written if they are not there yet."""
    if not (folder / "encoder").exists():
        folder.mkdir(parents=True, exist_ok=True)
        tiny_encoder(folder / "encoder", hidden_dropout_prob=0.1)
        for seed, (name, count) in enumerate({"train": 80, "dev": 40}.items(), 1):
            with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["sentence", "label"])
                writer.writerows((text, label) for (text,), label in zip(*reviews(count, seed), strict=True))
    training = {"batch_size": 8, "learning_rate": 1e-3, "ranks": 1, "precision": "fp32", "evaluations": 1}
    return {
        "data": {"task": "classification", "source": "files", "path": str(folder), "train": "train.csv",
                 "dev": "dev.csv", "test": ""},
        "model": {"name": str(folder / "encoder")},
        "preprocessing": {"max_length": 32},
        "training": training,
        "validation": {"max_overlap": 1},
        "runtime": {"checkpoint_steps": 2},
        "search": {"space": SPACE, "minutes": 60, "trials": 5, "seeds": 2, **search},
    }  # fmt: skip


def command(stage: str, home: Path, experiment: dict[str, Any]) -> list[str]:
    """The command line of a stage in the run `tune` of a home."""
    build(experiment, "the test's experiment")
    run = str(home / "runs" / "tune")
    return [sys.executable, "-m", "tasks", stage, "--run", run, "--experiment", json.dumps(experiment)]


def search(home: Path, experiment: dict[str, Any]) -> dict[str, Any]:
    """Search in a home, and return the content of search.json."""
    run, built = Run(home / "runs" / "tune"), build(experiment, "the test's experiment")
    run_stage("validate", built, run)
    return read(run_stage("search", built, run).path)


def killed(home: Path, experiment: dict[str, Any], kills: int, longest: float) -> tuple[dict[str, Any], int]:
    """Search in processes that are killed at random moments, up to so many seconds after their first line in the log.

    Return the content of search.json, and how many kills there were.
    """
    moments, befell, run = random.Random(0), 0, Run(home / "runs" / "tune")
    run_stage("validate", build(experiment, "the test's experiment"), run)
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as in tests (conftest.py)
    while True:
        with subprocess.Popen(
            command("search", home, experiment), cwd=ROOT, env=one_thread, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stderr
            said = process.stderr.readline()
            if befell < kills:
                time.sleep(moments.uniform(0, longest))
                process.kill()
            said += process.stderr.read()
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, said
            return read(run.artifact("search").path), befell
        befell += 1


def read(artifact: Path) -> dict[str, Any]:
    """The content of search.json."""
    found: dict[str, Any] = json.loads((artifact / "search.json").read_text(encoding="utf-8"))
    return found


def without_times(found: dict[str, Any]) -> dict[str, Any]:
    """The content of search.json without what differs from time to time."""
    trials = [
        {**trial, "seconds": 0, "rungs": [{**rung, "seconds": 0} for rung in trial["rungs"]]}
        for trial in found["trials"]
    ]
    return {**found, "seconds": 0, "trials": trials}
