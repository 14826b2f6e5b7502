"""Two ranks train on windows and evaluate documents, and a training that was stopped goes on as if it had not been."""

from __future__ import annotations

from pathlib import Path

import pytest

from include.artifacts import write_json
from tasks.encoder.batching import TokenTable, length_batches
from tasks.encoder.loading import load_trained
from tasks.encoder.models import predict_logits
from tasks.scoring.metrics import all_metrics
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tasks.training.loss import Criterion
from tasks.training.objectives import BATCH_TOKENS, LOSS
from tests.tasks.encoder.samples import stories, tiny_encoder, tokenizer, write_split
from tests.tasks.launching.jobs import lines, make_job
from tests.tasks.launching.ranks import on_ranks

STRIDE = 5

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks have trained on windows of 16 tokens: all through, and with a stop after step 5."""
    root, words = tmp_path_factory.mktemp("windows"), tokenizer()
    words.enable_truncation(16, stride=STRIDE)
    tiny_encoder(root / "encoder")
    for split, count, seed in (("train", 30, 1), ("dev", 60, 2)):
        write_split(root / "data" / split, *stories(count, seed), words=words, stride=STRIDE)
    for name in ("whole", "stopped"):
        make_job(root, ranks=2, epochs=1).write(root / f"{name}.json")
    on_ranks(train, 2, root)
    return root


def train(root: Path) -> None:
    """On every rank: train through; train until a stop is asked for; go on."""
    whole, stopped = (Job.read(root / f"{name}.json") for name in ("whole", "stopped"))
    build_trainer(whole, lambda: False).run()
    asked = iter([*[False] * 4, *[True] * 100])
    build_trainer(stopped, lambda: next(asked)).run()
    build_trainer(stopped, lambda: False).run()
    write_json(root / "done.json", {})


def test_ranks_evaluate_documents_whose_windows_are_on_both(root: Path) -> None:
    job = Job.read(root / "whole.json")
    table = TokenTable.open(job.data / "dev")
    batches = length_batches(table.lengths, batch_tokens=BATCH_TOKENS)
    parts = [{table.rows[at] for batch in batches[rank::2] for at in batch} for rank in range(2)]
    assert len(parts[0] & parts[1]) > 10, "some documents have windows on both ranks"
    model = load_trained(job.output / "model")
    logits, labels = predict_logits(model, table), table.labels[table.documents]
    assert logits.shape == (60, 2)
    best = max((line for line in lines(job.output) if LOSS in line), key=lambda line: line["accuracy"])
    assert best["accuracy"] == all_metrics(job.experiment.task, labels, logits)[job.experiment.task.metric]
    criterion = Criterion(job.experiment.loss, job.experiment.task, labels)
    assert best[LOSS] == pytest.approx(criterion.mean(logits, labels), rel=1e-5)


def test_a_stop_changes_nothing(root: Path) -> None:
    whole, stopped = (Job.read(root / f"{name}.json") for name in ("whole", "stopped"))
    figures = ("step", "loss", "accuracy", LOSS)
    shown = [[{name: line.get(name) for name in figures} for line in lines(job.output)] for job in (whole, stopped)]
    assert shown[0] == shown[1] and len(shown[0]) > 10
    weights = [(job.output / "model" / "model.safetensors").read_bytes() for job in (whole, stopped)]
    assert weights[0] == weights[1]
