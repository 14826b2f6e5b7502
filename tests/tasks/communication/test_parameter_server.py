from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import horovod.torch as hvd
import pytest
import torch

from tasks.communication import exchange as exchange_module
from tasks.communication.exchange import total_norm
from tests.tasks.communication.serving import (
    HIDDEN,
    RATE,
    Run,
    Tensors,
    assert_equal,
    copied,
    optimizer_of,
    random_loss,
    tiny_model,
    weights,
)

EMBEDDINGS = "model.encoder.embeddings.word_embeddings.weight"
HEAD = "model.classifier.weight"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Horovod with one rank, and buckets so small that the tiny model has many."""
    monkeypatch.setattr(exchange_module, "BUCKET_BYTES", 4096)
    hvd.init()
    yield
    hvd.shutdown()


def simulated(steps: int) -> list[Tensors]:
    """Weights at the start and after each step, every gradient taken at those before the ones that it moves."""
    model, reader = tiny_model(), tiny_model()
    optimizer = optimizer_of(model, dict(model.named_parameters()))
    history = [weights(model)]
    for number in range(1, steps + 1):
        reader.load_state_dict(history[max(0, number - 2)], strict=False)
        reader.zero_grad()
        random_loss(reader, number, 0).backward()  # type: ignore[no-untyped-call]
        for parameter, read in zip(model.parameters(), reader.parameters(), strict=True):
            assert read.grad is not None
            parameter.grad = read.grad.coalesce() if read.grad.is_sparse else read.grad
        optimizer.step(RATE, max(1.0, float(total_norm(dict(model.named_parameters())))))
        history.append(weights(model))
    return history


def test_under_staleness_a_gradient_is_that_of_the_parameters_one_step_ago() -> None:
    expected = simulated(6)
    stale, fresh = Run(staleness=1), Run()
    for number in range(1, 7):
        stale.step(number)
        torch.testing.assert_close(weights(stale.model), expected[number - 1])
        fresh.step(number)
    for run in (stale, fresh):
        run.server.receive_parameters()
    torch.testing.assert_close(weights(stale.model), expected[6])
    assert not torch.allclose(fresh.model.output_layer.weight, expected[6][HEAD], atol=RATE / 10)


def test_a_layer_waits_for_its_own_parameters_and_settle_for_all() -> None:
    run = Run()
    encoder: Any = run.model.encoder
    lower = encoder.encoder.layer[0]
    run.step(1)
    assert arrived(run) == set()
    encoder.embeddings(torch.zeros(1, 2, dtype=torch.long))  # waits for what is outside the layers
    assert {EMBEDDINGS, HEAD} < arrived(run)
    in_lower = {f"model.encoder.encoder.layer.0.{name}" for name, _ in lower.named_parameters()}
    assert not in_lower <= arrived(run)
    lower(torch.zeros(1, 2, HIDDEN))
    assert in_lower <= arrived(run) < set(weights(run.model))
    assert "model.encoder.encoder.layer.1.output.dense.weight" not in arrived(run)
    run.server.receive_parameters()
    assert arrived(run) == set(weights(run.model))


def arrived(run: Run) -> set[str]:
    """Names of the model's parameters that are as new as the server's."""
    pieces = run.server.parameters
    return {name for name, values in weights(run.model).items() if torch.equal(values, pieces[name].view_as(values))}


def test_parameters_travel_in_fp16_and_masters_stay_fp32() -> None:
    run = Run(server_parameters="fp16")
    assert all(torch.equal(values, values.half().float()) for values in weights(run.model).values())
    masters = copied(run.server.parameters)
    assert not torch.equal(masters[EMBEDDINGS], masters[EMBEDDINGS].half().float())
    run.step(1)
    run.server.receive_parameters()
    assert arrived(run) == set()
    for name, values in weights(run.model).items():
        assert name == EMBEDDINGS or not torch.equal(run.server.parameters[name], masters[name])
        assert torch.equal(values, run.server.parameters[name].view_as(values).half().float())


def test_the_server_adds_momentum_and_undoes_a_skipped_step() -> None:
    plain, with_momentum = Run(), Run(server_momentum=0.9)
    expected = {name: torch.zeros_like(piece) for name, piece in plain.server.parameters.items()}
    for number in (1, 2, 3):
        plain.gradients(number)  # both stay at the first parameters
        norm, _ = with_momentum.gradients(number)
        received, given = gradients(plain), gradients(with_momentum)
        rows = received[EMBEDDINGS].coalesce().indices()[0]
        for name, values in expected.items():
            where = rows if name == EMBEDDINGS else slice(None)
            values[where] = received[name].to_dense()[where] + 0.9 * values[where]
            torch.testing.assert_close(given[name].to_dense()[where], values[where])
        assert norm == pytest.approx(float(total_norm(with_momentum.server.parameters)))
        before = copied(with_momentum.server.state_dict())
        assert math.isnan(with_momentum.step(number + 10, factor=math.nan)[0])
        assert_equal(with_momentum.server.state_dict(), before)


def gradients(run: Run) -> Tensors:
    return {name: piece.grad for name, piece in run.server.parameters.items() if piece.grad is not None}
