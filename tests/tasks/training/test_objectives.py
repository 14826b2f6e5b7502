from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional
from transformers import BertForMaskedLM

from include.named_experiments import build
from tasks.communication.layout import flat
from tasks.encoder.loading import copy_tokenizer
from tasks.launching.launch import launch
from tasks.stages.pipeline.pretrain.blocks import BlockWriter
from tasks.stages.pipeline.pretrain.stage import settings
from tasks.training.job import Job
from tasks.training.masking import IGNORED
from tasks.training.objectives import FineTuning, MaskedWords, build_objective
from tests.tasks.launching.jobs import check_stop, losses, make_job
from tests.tasks.stages.pipeline.pretrain.samples import text, tiny_encoder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder and blocks; 61 and 9 documents, so that batches and ranks' shares are uneven."""
    root = tmp_path_factory.mktemp("pretraining")
    writer = BlockWriter(tiny_encoder(root / "encoder"), max_length=32)
    writer.write(text(61, seed=1), root / "blocks" / "train")
    writer.write(text(9, seed=2), root / "blocks" / "dev")
    return root


def pretraining(root: Path, options: dict[str, Any] | None = None, **training: Any) -> Job:
    values = {
        "preprocessing": {"max_length": 32},
        "pretraining": {"text": "any", "batch_size": 8, "learning_rate": 1e-2, **(options or {})},
        "training": {"precision": "fp32", "ranks": 1, **training},
    }
    output = root / f"output-{len(list(root.glob('output-*')))}"
    output.mkdir()
    experiment = settings(build(values, "the test's experiment"))
    return Job(experiment, root / "encoder", root / "blocks", output, objective="masked words")


def reference(masked: MaskedWords) -> Any:
    """Transformers' BertForMaskedLM with the same weights."""
    config: Any = masked.model.encoder.config
    bert, head = BertForMaskedLM(config), masked.model.head
    pooler = ("pooler.dense.weight", "pooler.dense.bias")
    bert.bert.load_state_dict({n: v for n, v in masked.model.encoder.state_dict().items() if n not in pooler})
    predictions = bert.cls.predictions
    predictions.transform.dense.load_state_dict(head.dense.state_dict())
    predictions.transform.LayerNorm.load_state_dict(head.norm.state_dict())
    with torch.no_grad():
        predictions.decoder.bias.copy_(head.bias)
    bert.tie_weights()
    return bert


def test_losses_and_gradients_are_those_of_the_full_computation(root: Path) -> None:
    masked = build_objective(pretraining(root))
    assert isinstance(masked, MaskedWords)
    torch.nn.init.normal_(masked.model.head.bias)
    bert = reference(masked)
    indices = np.arange(7)
    batch = masked.batch(indices, step=3)
    assert (batch.labels != IGNORED).sum() == masked.terms[indices].sum()
    mine = masked.losses(batch)
    full = bert(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=batch.labels)
    torch.testing.assert_close(mine.mean(), full.loss)
    torch.autograd.backward([mine.mean(), full.loss])
    tied = masked.model.words.weight.grad
    torch.testing.assert_close(tied, bert.bert.embeddings.word_embeddings.weight.grad)
    assert tied is not None and (tied.abs().sum(1) > 0).all()  # as decoder, every word has a gradient


def test_dev_is_scored_on_the_same_hidden_words_every_time(root: Path, horovod: None) -> None:
    masked = build_objective(pretraining(root))
    assert isinstance(masked, MaskedWords)
    scores, predictions = masked.score(flat())
    assert (scores, predictions) == masked.score(flat()) and predictions == {}
    assert scores["perplexity"] == pytest.approx(math.exp(scores["dev_loss"]))
    bert, expected = reference(masked), []
    for row in range(len(masked.dev)):
        seen, labels = masked.masking.hide(masked.dev.ids(row), 0, row)
        with torch.no_grad():
            logits = bert(input_ids=torch.tensor(seen)[None]).logits[0]
        chosen = labels != IGNORED
        expected += functional.cross_entropy(logits[chosen], torch.tensor(labels[chosen]), reduction="none").tolist()
    assert scores["dev_loss"] == pytest.approx(np.mean(expected), rel=1e-5)
    assert masked.selection_metric(scores) == -scores["dev_loss"]
    assert masked.model.training


@pytest.mark.long
def test_two_ranks_equal_one_and_the_encoder_learns(root: Path) -> None:
    one = pretraining(root, {"epochs": 3, "whole_words": True}, accumulation=2)
    two = pretraining(root, {"epochs": 3, "whole_words": True}, ranks=2)
    launch(one)
    launch(two)
    np.testing.assert_allclose(losses(two.output), losses(one.output), rtol=2e-5)
    alone, shared = (load_file(job.output / "model" / "model.safetensors") for job in (one, two))
    before = load_file(root / "encoder" / "model.safetensors")
    for name, values in alone.items():
        torch.testing.assert_close(shared[name], values, atol=1e-4, rtol=1e-3)
    assert alone.keys() == before.keys()
    assert torch.equal(alone["pooler.dense.weight"], before["pooler.dense.weight"])
    assert not torch.equal(alone["embeddings.word_embeddings.weight"], before["embeddings.word_embeddings.weight"])
    summary = json.loads((one.output / "training.json").read_text())
    assert summary["metric"] == "perplexity"
    assert summary["best"] < 0.5 * math.exp(losses(one.output)[0])


def test_a_stopped_pre_training_goes_on_to_the_bit(root: Path, horovod: None) -> None:
    whole, stopped = (pretraining(root) for _ in range(2))
    check_stop(whole, stopped)


def test_the_job_says_which_objective_it_is(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    assert isinstance(build_objective(job), FineTuning)
    told = dataclasses.replace(job, objective="masked words")
    told.write(tmp_path / "job.json")
    assert Job.read(tmp_path / "job.json").objective == "masked words"


def test_a_static_batch_is_padded_to_the_longest_input(root: Path) -> None:
    job = pretraining(root)
    values = job.experiment.model_dump(mode="json")
    static = build({**values, "batching": {"kind": "static"}}, "the test's experiment")
    for experiment, longest in ((job.experiment, False), (static, True)):
        masked = build_objective(Job(experiment, job.encoder, job.data, job.output, objective="masked words"))
        shortest = masked.train.lengths.argsort()[:1]
        length = 32 if longest else masked.train.lengths.min()
        batch = masked.batch(shortest, 1)
        assert batch.input_ids.shape == batch.labels.shape == (1, length)
        assert (batch.labels != IGNORED).sum() == 1


def test_what_is_kept_is_an_encoder_to_start_from(root: Path, tmp_path: Path) -> None:
    job, kept = pretraining(root), tmp_path / "encoder"
    masked = build_objective(job)
    masked.model.save(kept)
    copy_tokenizer(job.encoder, kept, masked.model, 32)
    state = build_objective(dataclasses.replace(job, encoder=kept)).model.encoder.state_dict()
    assert all(torch.equal(state[name], values) for name, values in masked.model.encoder.state_dict().items())
