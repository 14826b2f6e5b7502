"""Models that nobody has trained, and packages of them that the stage package writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from benchmarks.workload import Workload
from include.runs import Run
from tasks.encoder.loading import copy_tokenizer, load_pretrained
from tasks.encoder.spec import HeadSpec
from tasks.runner import run_stage
from tests.tasks.stages.pipeline.package.packages import made

MAX_LENGTH = 64  # tokens; nearly all of SST-2's rows are shorter


def untrained(encoder: Path, folder: Path, seed: int = 0) -> Path:
    """A model with transformers' own head and random weights that make labels differ."""
    torch.manual_seed(seed)
    spec = HeadSpec("classification", 2, max_length=MAX_LENGTH, label_names=("negative", "positive"))
    model = load_pretrained(encoder, spec)
    torch.nn.init.normal_(model.output_layer.weight, std=1.0)
    folder.mkdir(parents=True)
    model.save(folder)
    copy_tokenizer(encoder, folder, model, spec.max_length)
    return folder


def package(workload: Workload, home: Path, seed: int = 0) -> Path:
    """The folder of a package of such a model, all of whose forms are checked on the dev rows of the workload."""
    experiment, run = workload.experiment, Run(home / "runs/packaged")
    with made(run, experiment, "preprocess") as folder:
        for split in ("train", "dev"):
            shutil.copytree(workload.data / split, folder / split)
    with made(run, experiment, "train") as folder:
        untrained(workload.encoder, folder / "model", seed)
    with made(run, experiment, "gate"):
        pass
    return run_stage("package", experiment, run).path
