"""A tiny model under a parameter server, for tests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import horovod.torch as hvd
import torch
from torch import nn
from transformers import BertConfig, BertModel

from include.fields.ranks import Communication
from include.fields.training import Training
from tasks.communication.exchange import Parameters, by_kind
from tasks.communication.parameter_server import ParameterServer
from tasks.encoder.loading import add_head
from tasks.encoder.models import Classifier
from tasks.encoder.spec import HeadSpec
from tasks.training.optim import Optimizer, settings

Tensors = dict[str, torch.Tensor]
WORDS, HIDDEN, RATE = 50, 16, 1e-2


def tiny_model() -> Classifier:
    """A two-layer BERT, always the same, whose word embeddings have row-sparse gradients."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    spec = HeadSpec(
        kind="classification", outputs=2, pooling="mean", dropout=0.0, max_length=16, label_names=("no", "yes"),
        score_range=None,
    )  # fmt: skip
    model = add_head(BertModel(config, add_pooling_layer=False), spec)
    words = model.encoder.get_input_embeddings()
    assert isinstance(words, nn.Embedding)
    words.sparse = True
    return model


def optimizer_of(model: Classifier, parameters: Parameters) -> Optimizer:
    """The engine's optimizer with its usual settings."""
    return Optimizer(parameters, settings(model, Training()), frozenset(by_kind(model)["embeddings"]))


def random_loss(model: Classifier, step: int, rank: int) -> torch.Tensor:
    """Of three random sentences, which step and rank alone decide."""
    generator = torch.Generator().manual_seed(step * 10 + rank)
    ids = torch.randint(WORDS, (3, 7), generator=generator)
    labels = torch.randint(2, (3,), generator=generator)
    return nn.functional.cross_entropy(model(ids, torch.ones_like(ids)), labels)


class Run:
    """A training of the tiny model."""

    def __init__(self, **communication: Any) -> None:
        self.model = tiny_model()
        self.server = ParameterServer(self.model, Communication(strategy="parameter-server", **communication))
        self.optimizer = optimizer_of(self.model, self.server.parameters)

    def gradients(self, number: int, wish: bool = False, factor: float = 1.0) -> tuple[float, bool]:
        """A step's forward and backward; the loss counts times factor. The norm, and whether to stop."""
        self.server.begin_step(number, 1.0, wish)
        loss = random_loss(self.model, number, hvd.rank()) * factor
        self.server.sync_next_backward()
        loss.backward()  # type: ignore[no-untyped-call]
        stop = self.server.synchronize_gradients()
        return float(self.server.norm()), stop

    def step(self, number: int, wish: bool = False, factor: float = 1.0) -> tuple[float, bool]:
        """A step as the training loop's."""
        norm, stop = self.gradients(number, wish, factor)
        if math.isfinite(norm):
            self.optimizer.step(RATE, max(1.0, norm))
            self.server.send_parameters()
        else:
            self.server.discard_step()
        self.optimizer.zero_grad()
        return norm, stop

    def state_dict(self) -> dict[str, Tensors]:
        """A copy of all that the next step depends on."""
        parts = {"model": weights(self.model), "server": self.server.state_dict(), "adamw": self.optimizer.state_dict()}
        return {part: copied(values) for part, values in parts.items()}

    def load_state_dict(self, state: dict[str, Tensors]) -> None:
        """Take over what state gave."""
        self.model.load_state_dict(state["model"], strict=False)  # buffers hold no weights
        self.server.load_state_dict(copied(state["server"]))
        self.optimizer.load_state_dict(copied(state["adamw"]))


def weights(model: nn.Module) -> Tensors:
    """The model's, as they are now."""
    return copied(dict(model.named_parameters()))


def copied(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """The same values elsewhere."""
    return {name: values.detach().clone() for name, values in tensors.items()}


def assert_equal(one: Any, other: Any) -> None:
    """To the bit."""
    torch.testing.assert_close(one, other, rtol=0, atol=0)
