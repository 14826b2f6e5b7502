"""Encoders of every family train with compressed gradients, stop, and go on to the bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification

from tasks.training.factory import build_trainer
from tasks.training.job import Job, checkpoints
from tests.tasks.encoder.families import FAMILIES, family
from tests.tasks.encoder.samples import reviews, write_split
from tests.tasks.launching.jobs import losses, make_job
from tests.tasks.launching.ranks import on_ranks

COMPRESSION = {"compression": "powersgd", "powersgd_rank": 1, "compression_start": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks have trained every family by the jobs in this folder: all through, and with a stop after step 3."""
    folder = tmp_path_factory.mktemp("families")
    for kind in FAMILIES:
        root = folder / kind
        words = Tokenizer.from_file(str(family(root / "encoder", kind) / "tokenizer.json"))
        write_split(root / "data" / "train", *reviews(60, seed=1), words=words)
        write_split(root / "data" / "dev", *reviews(30, seed=2), words=words)
        for name in ("whole", "stopped"):
            job = make_job(root, COMPRESSION, ranks=2, epochs=0.75)
            job = dataclasses.replace(job, checkpoints=root / f"{name}-checkpoints")
            experiment = job.experiment
            model = experiment.model.model_copy(update={"pooling": "native"})
            job = dataclasses.replace(job, experiment=experiment.model_copy(update={"model": model}))
            job.folder.mkdir()
            job.write(root / f"{name}.json")
    on_ranks(stop_and_go_on, 2, folder)
    return folder


def stop_and_go_on(folder: Path) -> None:
    """On every rank and for every family: train through; train until a stop is asked for; go on."""
    for kind in FAMILIES:
        whole, stopped = (Job.read(folder / kind / f"{name}.json") for name in ("whole", "stopped"))
        build_trainer(whole, lambda: False).run()
        asked = iter([False, False, True])
        build_trainer(stopped, lambda asked=asked: next(asked)).run()  # type: ignore[misc]
        build_trainer(stopped, lambda: False).run()


@pytest.mark.parametrize("kind", FAMILIES)
def test_it_learns_and_goes_on_to_the_bit(folder: Path, kind: str) -> None:
    whole, stopped = (Job.read(folder / kind / f"{name}.json") for name in ("whole", "stopped"))
    assert list(checkpoints(stopped.folder)) == [3]
    assert losses(stopped.output) == losses(whole.output)
    files = [(job.output / "model" / "model.safetensors").read_bytes() for job in (whole, stopped)]
    assert files[0] == files[1]
    before, after = load_file(whole.encoder / "model.safetensors"), load_file(whole.output / "model/model.safetensors")
    prefix = AutoModelForSequenceClassification.from_pretrained(whole.output / "model").base_model_prefix
    kept = [name for name, values in before.items() if values.equal(after.get(f"{prefix}.{name}", values))]
    assert all(name.startswith("pooler.") for name in kept)  # The heads of some families do not use the pooler.
