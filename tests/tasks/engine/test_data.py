from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from include.experiment import Training
from include.stages import BadInput
from tasks.encoder.batching import TokenTable
from tasks.encoder.models import load_pretrained
from tasks.encoder.spec import HeadSpec
from tasks.engine.data import (
    check,
    check_batch_size,
    epoch_batches,
    evaluation_steps,
    shares,
    steps_per_epoch,
    total_steps,
)
from tests.tasks.encoder.samples import WORDS, reviews, tiny_encoder, write_split

LENGTHS = np.random.default_rng(0).geometric(0.1, 10_007) + 2


def test_an_epoch_holds_every_row_once_in_batches_of_like_size() -> None:
    batches = epoch_batches(LENGTHS, 32, seed=1, epoch=0)
    assert sorted(np.concatenate(batches)) == list(range(len(LENGTHS)))
    assert {len(batch) for batch in batches} <= {31, 32}
    assert len(batches) == steps_per_epoch(len(LENGTHS), 32)


def test_batches_hardly_pad() -> None:
    batches = epoch_batches(LENGTHS, 32, seed=1, epoch=0)
    padded = sum(len(batch) * LENGTHS[batch].max() for batch in batches)
    assert 1 - LENGTHS.sum() / padded < 0.05


def test_order_is_a_function_of_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return [int(row) for batch in epoch_batches(LENGTHS, 32, seed, epoch) for row in batch]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_lengths_are_not_in_order_over_an_epoch() -> None:
    means = np.array([LENGTHS[batch].mean() for batch in epoch_batches(LENGTHS, 32, seed=1, epoch=0)])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


@pytest.mark.parametrize("world", [2, 3, 4, 8])
@pytest.mark.parametrize("rows", [9, 24, 61])
def test_ranks_share_each_batch_and_their_weights_make_its_mean(rows: int, world: int) -> None:
    training = Training(epochs=2, batch_size=24 if rows >= 24 else 8, ranks=1)
    whole = list(shares(LENGTHS[:rows], training, 0, 1))
    parts = [list(shares(LENGTHS[:rows], training, rank, world)) for rank in range(world)]
    assert {len(part) for part in parts} == {len(whole)} == {total_steps(rows, training)}
    for batch, *own in zip(whole, *parts, strict=True):
        weights = np.zeros(rows)
        for share in own:
            assert (share.step, share.epoch, share.rows) == (batch.step, batch.epoch, batch.rows)
            assert len(share.indices) > 0
            np.add.at(weights, share.indices, share.weight)
        expected = np.zeros(rows)
        expected[batch.indices] = 1 / len(batch.indices)
        np.testing.assert_allclose(weights, expected)


def test_parts_of_an_epoch_and_the_steps_that_are_scored() -> None:
    training = Training(epochs=1.5, batch_size=8, ranks=1, evaluations=2)
    assert total_steps(80, training) == 15
    assert evaluation_steps(80, training) == {5, 10, 15}
    assert evaluation_steps(80, training.model_copy(update={"epochs": 1.2})) == {5, 10, 12}
    assert evaluation_steps(80, training.model_copy(update={"evaluations": 1000})) == set(range(1, 16))
    assert total_steps(80, training.model_copy(update={"epochs": 0.001})) == 1


def test_the_tables_must_fit(tmp_path: Path) -> None:
    model = load_pretrained(tiny_encoder(tmp_path / "encoder"), HeadSpec("classification", 2, max_length=32))
    sentences, labels = reviews(20)
    table = TokenTable.open(write_split(tmp_path / "train", sentences, labels))
    check(table, model)
    with pytest.raises(BadInput, match="batch_size is 32, but only 20 rows are left to train on: write 20 or less"):
        check_batch_size(table, Training(batch_size=32))
    three = TokenTable.open(write_split(tmp_path / "three", sentences, [2] * 20))
    with pytest.raises(BadInput, match="labels from 2 to 2, but the task has 2 classes"):
        check(three, model)
    with pytest.raises(BadInput, match="has no rows"):
        check(TokenTable.open(write_split(tmp_path / "empty", [], [])), model)
    small = load_pretrained(tiny_encoder(tmp_path / "small"), HeadSpec("classification", 2, max_length=32))
    small.encoder.config.vocab_size = len(WORDS) - 20
    with pytest.raises(BadInput, match="made with another tokenizer"):
        check(table, small)
