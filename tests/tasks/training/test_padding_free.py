from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from transformers import BertModel

from include.named_experiments import build
from tasks.encoder.batching import Batch
from tasks.stages.pipeline.pretrain.blocks import BlockWriter
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tests.tasks.launching.jobs import lines, losses, make_job
from tests.tasks.stages.pipeline.pretrain.samples import text
from tests.tasks.stages.pipeline.pretrain.samples import tiny_encoder as words_encoder
from tests.tasks.training.test_layers import encoder
from tests.tasks.training.test_objectives import pretraining

pytestmark = pytest.mark.usefixtures("horovod")

NO_DROPOUT = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}


def padding_free(job: Job) -> Job:
    values = job.experiment.model_dump(mode="json")
    values["batching"]["padding_free"] = True
    return dataclasses.replace(job, experiment=build(values, "the test's experiment"))


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
@pytest.mark.parametrize("options", [{}, {"activation_checkpointing": True}, {"lora_rank": 4}])
def test_a_training_without_padding_is_the_same_training(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    padded = make_job(tmp_path, accumulation=2, **{**options, "activation_checkpointing": False})
    encoder(kind, max_position_embeddings=40, **NO_DROPOUT).save_pretrained(padded.encoder)
    packed = padding_free(make_job(tmp_path, accumulation=2, **options))
    for job in (padded, packed):
        build_trainer(job, lambda: False).run()
    np.testing.assert_allclose(losses(packed.output), losses(padded.output), rtol=1e-4)
    dev = [[line["dev_loss"] for line in lines(job.output) if "dev_loss" in line] for job in (packed, padded)]
    np.testing.assert_allclose(dev[0], dev[1], rtol=1e-4)
    shares = [json.loads((job.output / "training.json").read_text())["padding_share"] for job in (packed, padded)]
    assert shares[0] == 0 < shares[1]


def first_step(job: Job) -> tuple[float, Batch, list[tuple[int, ...]]]:
    """Its loss and batch, and the shapes that went into the encoder's layers."""
    trainer, shapes = build_trainer(job, lambda: False), list[tuple[int, ...]]()
    share = next(iter(trainer.sampler))
    for layer in cast(BertModel, trainer.model.encoder).encoder.layer:
        layer.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    batch = trainer.inputs(share)
    return trainer.loss(batch, share.weight).item(), batch, shapes


@pytest.mark.parametrize("objective", ["labels", "masked words"])
def test_no_layer_sees_padding(tmp_path: Path, objective: str) -> None:
    if objective == "labels":
        job = make_job(tmp_path)
    else:
        writer = BlockWriter(words_encoder(tmp_path / "encoder"), max_length=32)
        writer.write(text(61, seed=1), tmp_path / "blocks" / "train")
        writer.write(text(9, seed=2), tmp_path / "blocks" / "dev")
        job = pretraining(tmp_path)
    expected, padded, _ = first_step(job)
    loss, batch, shapes = first_step(padding_free(job))
    assert loss == pytest.approx(expected, rel=1e-5)
    tokens = int(padded.attention_mask.sum())
    assert batch.places == tokens < padded.places
    assert [shape[:2] for shape in shapes] == [(1, tokens)] * 2


def test_an_encoder_that_cannot_is_named_and_trained_with_padding(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job(tmp_path, fused_layers=False)
    encoder("deberta-v2", max_position_embeddings=40, **NO_DROPOUT).save_pretrained(job.encoder)
    expected, padded, shapes = first_step(job)
    assert not caplog.messages
    loss, batch, same = first_step(padding_free(job))
    assert loss == expected
    assert (batch.packing, same) == (None, shapes)
    assert batch.places == padded.places
    (message,) = caplog.messages
    assert message.startswith("batching.padding_free has no effect: the encoder (deberta-v2) cannot compute")


@pytest.mark.parametrize("kind", ["bert", "mpnet", "roberta"])
def test_an_encoder_without_layers_to_fuse_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    job = make_job(tmp_path)
    encoder(kind, max_position_embeddings=40).save_pretrained(job.encoder)
    with caplog.at_level(logging.INFO):
        build_trainer(job, lambda: False)
    said = [message for message in caplog.messages if "fused_layers has no effect except on dropout" in message]
    assert len(said) == (kind == "roberta")
    assert all("none of the layers of the encoder (roberta) can be fused" in message for message in said)
