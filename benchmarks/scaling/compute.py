"""What a step computes, and when its gradients are there: measured on one rank of the engine with one thread."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from include.named_experiments import load
from tasks.communication.exchange import by_kind, group_by_size
from tasks.encoder.models import EncoderWithHead
from tasks.launching.tuning import keep_freed_memory
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tests.tasks.encoder.samples import reviews, tiny_encoder, write_split

TOKENS, ROWS = 32, 32  # of every rank's batch
WORDS = 120  # rows of the word embeddings that have a gradient: those of 16 rows of SST-2
_BASE = {"vocab_size": 30522, "max_position_embeddings": 512, "hidden_size": 768, "intermediate_size": 3072,
         "num_attention_heads": 12}  # fmt: skip
#: Encoders of random weights, as BERT's configurations.
SIZES: dict[str, dict[str, Any]] = {
    "MiniLM": {**_BASE, "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6},
    "DistilBERT": {**_BASE, "num_hidden_layers": 6},
    "BERT-base": {**_BASE, "num_hidden_layers": 12},
    "tiny": {"vocab_size": 500, "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2,
             "num_attention_heads": 2, "max_position_embeddings": 64},
}  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """A step of one rank, in seconds since it began.

    Attributes:
        buckets: shapes of the parameters of each bucket of matrices, in the order in which they are sent.
        ready: when the last gradient of each of these buckets is there.
        rows: shape of the word embeddings.
        rows_ready: when their gradient is there.
        rest: the number of elements that are sent after backward.
        backward: when the backward pass ends.
        step: when the optimizer has moved the weights.
        parameters: of the encoder and its head, their number.
    """

    buckets: list[list[list[int]]]
    ready: list[float]
    rows: list[int]
    rows_ready: float
    rest: int
    backward: float
    step: float
    parameters: int


def build(size: str) -> EncoderWithHead:
    """Return an encoder of this size, with a head and row-sparse word embeddings."""
    model = EncoderWithHead(BertForSequenceClassification(BertConfig(**SIZES[size])))
    words: Any = model.encoder.get_input_embeddings()
    words.sparse = True
    return model


def profile(size: str, scratch: Path, steps: int) -> Profile:
    """Train an encoder of this size for some steps, of which the first two do not count; return the medians.

    Every batch has 32 rows of 32 tokens. The texts are few words, which changes nothing but the word embeddings.
    """
    keep_freed_memory()
    torch.set_num_threads(1)
    trainer = build_trainer(_job(size, scratch, (steps + 2) * ROWS), stopping=lambda: False)
    kinds = by_kind(trainer.model)
    groups = group_by_size(kinds["matrices"].values())
    (words,) = kinds["embeddings"].values()
    ready: dict[torch.Tensor, float] = {}
    for parameter in trainer.exchange.parameters.values():
        parameter.register_post_accumulate_grad_hook(lambda p: ready.update({p: time.perf_counter()}))  # type: ignore[no-untyped-call]
    moments = []
    for share in trainer.sampler:
        began = time.perf_counter()
        trainer.step(share)
        ended = time.perf_counter()
        buckets = [max(ready[p] for p in group) for group in groups]
        moments.append([moment - began for moment in (*buckets, ready[words], max(ready.values()), ended)])
    *sent, rows_ready, backward, step = (statistics.median(column) for column in zip(*moments[2:], strict=True))
    return Profile(
        buckets=[[list(p.shape) for p in group] for group in groups],
        ready=sent,
        rows=list(words.shape),
        rows_ready=rows_ready,
        rest=sum(p.numel() for p in kinds["rest"].values()) + 1,  # and the request to stop
        backward=backward,
        step=step,
        parameters=sum(p.numel() for p in trainer.model.parameters()),
    )


def _job(size: str, scratch: Path, rows: int) -> Job:
    data, output = scratch / f"{size}-data", scratch / f"{size}-output"
    write_split(data / "train", *reviews(rows, seed=1))
    write_split(data / "dev", *reviews(ROWS, seed=2))
    output.mkdir()
    chosen = {
        "training": {"batch_size": ROWS, "ranks": 1, "epochs": 1, "evaluations": 1},
        "preprocessing": {"max_length": TOKENS},
        "batching": {"kind": "static"},
    }
    encoder = tiny_encoder(scratch / f"{size}-encoder", **SIZES[size])
    return Job(load(json.dumps(chosen)), encoder, data, output)
