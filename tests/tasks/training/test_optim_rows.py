"""Word embeddings that are moved by rows, held against torch's dense AdamW."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from include.fields.training import Training
from tasks.launching.launch import launch
from tasks.training.adamw import EPSILON, RowAdamW, Setting
from tasks.training.optim import learning_rate
from tests.tasks.launching.jobs import losses, make_job

WORDS, FEATURES, STEPS = 40, 8, 400
SETTING = Setting(rate=2.0, weight_decay=0.1)
TRAINING = Training(learning_rate=1e-3, warmup=0.1)


def rows_at(step: int) -> list[int]:
    """Row 0 is in every gradient, row r in that of every r-th step and its neighbour's, 38 but once and 39 never."""
    return [row for row in range(38) if row == 0 or step % row in (0, 1)] + [38] * (step == 20)


def gradient(step: int, rows: list[int], size: float) -> torch.Tensor:
    values = size * torch.randn((len(rows), FEATURES), generator=torch.Generator().manual_seed(step))
    return torch.sparse_coo_tensor(torch.tensor([rows]), values, (WORDS, FEATURES)).coalesce()


class Dense:
    """torch's AdamW on the same parameter with the same gradients, zeros included."""

    def __init__(self, parameter: torch.Tensor, setting: Setting) -> None:
        self.parameter, self._setting = parameter.detach().clone(), setting
        self._adamw = torch.optim.AdamW([self.parameter], weight_decay=setting.weight_decay, foreach=False)

    def step(self, found: torch.Tensor, rate: float) -> None:
        self._adamw.param_groups[0]["lr"] = rate * self._setting.rate
        self.parameter.grad = found.to_dense() / 3.0
        self._adamw.step()


def start() -> torch.Tensor:
    return torch.randn((WORDS, FEATURES), generator=torch.Generator().manual_seed(0))


def test_every_row_is_where_dense_adamw_has_it_whenever_it_is_read() -> None:
    """Through warm-up and decay, after up to 380 steps without a gradient."""
    sparse = RowAdamW(start(), SETTING)
    dense = Dense(sparse.parameter, SETTING)
    for step in range(1, STEPS + 1):
        rows, rate = rows_at(step), learning_rate(step, STEPS, TRAINING)
        sparse.catch_up(torch.tensor(rows))
        torch.testing.assert_close(sparse.parameter[rows], dense.parameter[rows], rtol=1e-5, atol=1e-6)
        sparse.parameter.grad = gradient(step, rows, 0.01)
        sparse.step(rate, divisor=3.0)
        dense.step(sparse.parameter.grad, rate)
    assert not torch.allclose(sparse.parameter, dense.parameter, rtol=1e-5, atol=1e-5)  # rows are owed something
    sparse.catch_up()
    torch.testing.assert_close(sparse.parameter, dense.parameter, rtol=1e-5, atol=1e-6)
    again = sparse.parameter.clone()
    sparse.catch_up()
    assert torch.equal(sparse.parameter, again)


def test_a_word_seen_once_goes_all_the_way_that_its_momentum_takes_it() -> None:
    rate = 1e-3
    sparse = RowAdamW(torch.zeros(2, FEATURES), Setting(1.0, 0.0))
    for step in range(200):
        seen = [0, 1] if step == 100 else [1]
        values = torch.full((len(seen), FEATURES), 0.01)
        sparse.parameter.grad = torch.sparse_coo_tensor(torch.tensor([seen]), values, (2, FEATURES)).coalesce()
        sparse.step(rate, divisor=1.0)
    at_once = sparse.parameter[0].clone()
    sparse.catch_up()
    ways = [float(-way.mean() / rate) for way in (at_once, sparse.parameter[0])]
    assert ways == pytest.approx([1.0, 10.0], rel=0.1)


@pytest.mark.parametrize(
    ("size", "seen", "error"),
    [(1e-12, 10, 1e-4), (2.5e-8, 1, 0.04), (5e-8, 10, 0.01), (1e-7, 100, 6e-4), (1e-4, 10, 1e-4), (1e-4, 1, 1e-3)],
)
def test_gradients_as_small_as_epsilon_are_off_by_little(size: float, seen: int, error: float) -> None:
    """As a share of the way that a row goes which was seen in one step only.

    EPSILON outweighs the smallest, and is outweighed by the largest. The sizes between are the worst for their step.
    """
    assert EPSILON == 1e-8
    setting = Setting(1.0, 0.0)
    sparse = RowAdamW(torch.zeros(WORDS, FEATURES), setting)
    dense = Dense(sparse.parameter, setting)
    for step in range(1, seen + 50):
        rows = list(range(WORDS)) if step == seen else [0]
        values = torch.full((len(rows), FEATURES), 3 * size)
        sparse.parameter.grad = torch.sparse_coo_tensor(torch.tensor([rows]), values, (WORDS, FEATURES)).coalesce()
        sparse.step(1e-3, divisor=3.0)
        dense.step(sparse.parameter.grad, 1e-3)
    sparse.catch_up()
    torch.testing.assert_close(sparse.parameter, dense.parameter, rtol=error, atol=0)


def test_ranks_that_caught_up_other_rows_agree_to_the_bit_after_a_skipped_step() -> None:
    ranks = [RowAdamW(start(), SETTING) for _ in range(2)]
    read = ([3, 4, 5], [5, 6])
    for step in range(1, 30):
        both = sorted({*read[0], *read[1]}) if step in (20, 28) else [step % WORDS]
        for rank, own in zip(ranks, read, strict=True):
            rank.catch_up(torch.tensor(own if len(both) > 1 else both))
            rank.parameter.grad = gradient(step, both, 0.01)
            if step == 20:
                rank.skip()
            else:
                rank.step(1e-3, divisor=1.0)
    assert torch.equal(ranks[0].parameter, ranks[1].parameter)
    for name, values in ranks[0].state_dict().items():
        assert torch.equal(ranks[1].state_dict()[name], values), name


@pytest.mark.parametrize("more", [{}, {"average_decay": 0.9}, {"accumulation": 2}])
def test_a_training_is_the_same_by_rows_and_dense(tmp_path: Path, more: dict[str, Any]) -> None:
    jobs = [make_job(tmp_path, sparse_embeddings=sparse, epochs=3, **more) for sparse in (True, False)]
    for job in jobs:
        launch(job)
    by_rows, dense = (job.output for job in jobs)
    np.testing.assert_allclose(losses(by_rows), losses(dense), rtol=1e-4)
    words = [load_file(output / "model" / "model.safetensors") for output in (by_rows, dense)]
    torch.testing.assert_close(*words, atol=2e-5, rtol=1e-4)
    steps = [json.loads((output / "training.json").read_text())["best_step"] for output in (by_rows, dense)]
    assert steps[0] == steps[1]
