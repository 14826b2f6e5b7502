from __future__ import annotations

from pathlib import Path
from typing import cast

import horovod.torch as hvd
import pytest
import torch
from torch import nn

from include.stages import BadInput
from tasks.encoder.dropout import replace_dropout
from tasks.encoder.fused_layer import fuse_layers
from tasks.encoder.loading import add_head
from tasks.encoder.models import Classifier
from tasks.encoder.spec import HeadSpec
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tasks.training.layers import recompute_activations
from tests.tasks.encoder.samples import tiny_encoder
from tests.tasks.launching.jobs import losses, make_job
from tests.tasks.launching.ranks import on_ranks
from tests.tasks.training.test_layers import encoder


def built(kind: str, fused: bool = False) -> Classifier:
    """In training mode; BERT and its kin drop 10 %."""
    torch.manual_seed(0)
    model = add_head(encoder(kind), HeadSpec("classification", 2)).train()
    cast(nn.Embedding, model.encoder.get_input_embeddings()).sparse = True
    if fused:
        replace_dropout(model)
        fuse_layers(model.encoder)
    return model


def loss_of(model: Classifier) -> torch.Tensor:
    torch.manual_seed(1)
    ids = torch.randint(3, 40, (4, 12))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    return cast(torch.Tensor, model(ids, mask, torch.zeros_like(ids)).square().sum())


def gradients(model: Classifier) -> dict[str, torch.Tensor]:
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {name: grad.coalesce().to_dense() if grad.is_sparse else grad for name, grad in grads.items()}


@pytest.mark.parametrize("kind", ["bert", "mpnet", "albert", "distilbert", "modernbert", "deberta-v2"])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("bf16", [False, True])
def test_loss_and_gradients_are_the_same_to_the_bit(kind: str, fused: bool, bf16: bool) -> None:
    plain, recomputing = built(kind, fused), built(kind, fused)
    recompute_activations(recomputing.encoder)
    found = []
    for model in (plain, recomputing):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = loss_of(model)
        loss.backward()  # type: ignore[no-untyped-call]
        found.append((loss, gradients(model)))
    (loss, expected), (same_loss, same) = found
    assert torch.equal(same_loss, loss)
    assert same.keys() == expected.keys()
    assert all(torch.equal(same[name], values) for name, values in expected.items())


def kept_bytes(model: Classifier) -> int:
    """What a forward in bf16 keeps for backward, parameters aside."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model)
        loss.backward()  # type: ignore[no-untyped-call]  # alive to here, so no address comes twice
    return sum(kept.values())


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_what_forward_keeps_shrinks(kind: str) -> None:
    plain, recomputing = built(kind), built(kind)
    recompute_activations(recomputing.encoder)
    assert kept_bytes(recomputing) < 0.3 * kept_bytes(plain)


def test_what_a_training_with_fused_layers_keeps_shrinks_too(tmp_path: Path) -> None:
    hvd.init()
    plain, recomputing = (
        build_trainer(make_job(tmp_path, activation_checkpointing=on), stopping=lambda: False).model
        for on in (False, True)
    )
    hvd.shutdown()
    assert kept_bytes(cast(Classifier, recomputing)) < 0.3 * kept_bytes(cast(Classifier, plain))


def test_a_gradient_is_complete_when_its_hook_runs_and_each_hook_runs_once() -> None:
    model = built("bert")
    recompute_activations(model.encoder)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def note(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        seen.append((parameter, parameter.grad.to_dense().clone()))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(note)  # type: ignore[no-untyped-call]
    loss_of(model).backward()  # type: ignore[no-untyped-call]
    assert len(seen) == len({id(parameter) for parameter, _ in seen}) > 30
    assert all(p.grad is not None and torch.equal(p.grad.to_dense(), gradient) for p, gradient in seen)


def train_both(folder: Path) -> None:
    """On one of the ranks."""
    for name in ("plain", "recomputing"):
        build_trainer(Job.read(folder / f"{name}.json"), stopping=lambda: False).run()


@pytest.mark.long
def test_two_ranks_train_the_same_with_it(tmp_path: Path) -> None:
    jobs = {
        name: make_job(tmp_path, ranks=2, epochs=0.5, evaluations=1, activation_checkpointing=name == "recomputing")
        for name in ("plain", "recomputing")
    }
    tiny_encoder(jobs["plain"].encoder, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    for name, job in jobs.items():
        job.write(tmp_path / f"{name}.json")
    on_ranks(train_both, 2, tmp_path)
    found = losses(jobs["recomputing"].output)
    assert len(found) == 4
    assert found == losses(jobs["plain"].output)


@pytest.mark.parametrize("kind", ["xlm", "flaubert"])
def test_an_encoder_that_fills_a_cache_is_refused(kind: str) -> None:
    with pytest.raises(BadInput, match=rf"the encoder \({kind}\) .* write training.activation_checkpointing: false"):
        recompute_activations(encoder(kind))
