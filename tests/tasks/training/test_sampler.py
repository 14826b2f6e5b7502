from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from include.fields.training import Batching, Training
from include.stages import BadInput
from tasks.encoder.batching import Array, TokenTable
from tasks.encoder.loading import load_pretrained
from tasks.encoder.spec import HeadSpec
from tasks.training.sampler import (
    RankBatch,
    Sampler,
    check,
    check_batch_size,
    epoch_batches,
    evaluation_steps,
    tier_batches,
)
from tests.tasks.encoder.samples import WORDS, reviews, tiny_encoder, write_split

LENGTHS = np.random.default_rng(0).geometric(0.1, 10_007) + 2
SST2 = Path("../shared/data/glue/SST-2/train.tsv")
KINDS = get_args(Batching.model_fields["kind"].annotation)


def batching(kind: str, batch_tokens: int = 512) -> Batching:
    return Batching.model_validate({"kind": kind, "batch_tokens": batch_tokens})


def sampler(lengths: Array, kind: str, rank: int = 0, world: int = 1, **training: Any) -> Sampler:
    values = {"epochs": 2, "batch_size": 8, **training}
    return Sampler(lengths, np.ones(len(lengths)), batching(kind), Training(**values), rank, world)


def same(one: list[RankBatch], other: list[RankBatch]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a.indices, b.indices) and (a.step, a.epoch, a.weight) == (b.step, b.epoch, b.weight)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_holds_every_row_once(kind: str) -> None:
    batches = epoch_batches(LENGTHS, batching(kind), Training(), epoch=0)
    assert sorted(np.concatenate(batches)) == list(range(len(LENGTHS)))


@pytest.mark.parametrize("kind", KINDS)
def test_order_is_a_function_of_seed_and_epoch(kind: str) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return [
            int(row) for batch in epoch_batches(LENGTHS, batching(kind), Training(seed=seed), epoch) for row in batch
        ]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


@pytest.mark.parametrize("kind", ["length", "static"])
def test_fixed_batches_are_of_like_size(kind: str) -> None:
    assert {len(batch) for batch in epoch_batches(LENGTHS, batching(kind), Training(), epoch=0)} <= {31, 32}


def test_batches_of_tokens_fill_their_budget() -> None:
    batches = epoch_batches(LENGTHS, batching("tokens", 1024), Training(), epoch=0)
    padded = np.array([len(batch) * LENGTHS[batch].max() for batch in batches])
    assert padded.max() <= 1024
    assert np.median(padded) > 0.95 * 1024


def test_tiers_by_hand() -> None:
    lengths = np.repeat([10, 32, 33, 60, 70, 128, 129, 300], [200, 60, 64, 10, 64, 32, 8, 8])
    batches = [lengths[batch] for batch in tier_batches(lengths)]
    assert [len(batch) for batch in batches] == [16, 32, 32, 64, 128, 128, 46]
    assert [round(float(batch.mean()), 1) for batch in batches] == [214.5, 128.0, 70.0, 55.7, 27.9, 10.0, 10.0]


def known_lengths() -> dict[str, Array]:
    """Made-up ones and, where the data is at hand, SST-2's: its text is cut into words already, and a word has
    about 1.2 pieces."""
    if not SST2.exists():
        return {"made up": LENGTHS}
    lines = SST2.read_text(encoding="utf-8").splitlines()[1:]
    words = np.array([len(line.split("\t")[0].split()) for line in lines])
    return {"made up": LENGTHS, "SST-2": np.round(1.2 * words).astype(np.int64) + 2}


@pytest.mark.parametrize("kind", ["length", "tokens", "tiers"])
@pytest.mark.parametrize("world", [1, 2])
def test_batches_hardly_pad(kind: str, world: int) -> None:
    for name, lengths in known_lengths().items():
        shares = [list(sampler(lengths, kind, rank, world, batch_size=32, epochs=1)) for rank in range(world)]
        rows = [share.indices for rank in shares for share in rank]
        padded = sum(len(indices) * int(lengths[indices].max()) for indices in rows)
        assert 1 - lengths.sum() / padded < 0.05, name


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_are_not_in_order_over_an_epoch(kind: str) -> None:
    many = np.tile(LENGTHS, 8)
    means = np.array([many[batch].mean() for batch in epoch_batches(many, batching(kind), Training(), 0)])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.15


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [2, 3, 8])
@pytest.mark.parametrize("rows", [9, 24, 61])
def test_ranks_share_each_batch_and_their_weights_make_its_weighted_mean(rows: int, world: int, kind: str) -> None:
    terms = np.random.default_rng(1).uniform(0.5, 2, rows)
    training = Training(epochs=2, batch_size=8)
    ranks = [list(Sampler(LENGTHS[:rows] * 4, terms, batching(kind), training, rank, world)) for rank in range(world)]
    whole = list(Sampler(LENGTHS[:rows] * 4, terms, batching(kind), training, 0, 1))
    assert {len(rank) for rank in ranks} == {len(whole)}
    for batch, *own in zip(whole, *ranks, strict=True):
        weights = np.zeros(rows)
        for share in own:
            assert (share.step, share.epoch, share.rows) == (batch.step, batch.epoch, batch.rows)
            assert len(share.indices) > 0
            np.add.at(weights, share.indices, share.weight * terms[share.indices])
        expected = np.zeros(rows)
        expected[batch.indices] = terms[batch.indices] / terms[batch.indices].sum()
        np.testing.assert_allclose(weights, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sampler_goes_on_where_its_state_was_taken(kind: str) -> None:
    whole = list(sampler(LENGTHS[:300], kind, epochs=2.5))
    for done in (1, len(whole) // 2, len(whole) - 1, len(whole)):
        first = sampler(LENGTHS[:300], kind, epochs=2.5)
        begun = list(islice(first, done))
        second = sampler(LENGTHS[:300], kind, epochs=2.5)
        second.load_state_dict(first.state_dict())
        assert same(begun[:-1] + list(second), whole)  # the step under way is repeated


def test_a_sampler_goes_on_with_another_number_of_ranks() -> None:
    first = sampler(LENGTHS[:300], "tiers")
    first.load_state_dict({"done": 1})
    whole, parts = [list(first)], []
    for rank in range(3):
        second = sampler(LENGTHS[:300], "tiers", rank, 3)
        second.load_state_dict({"done": 1})
        parts.append(list(second))
    for batch, *own in zip(*whole, *parts, strict=True):
        assert sorted(np.concatenate([share.indices for share in own])) == sorted(batch.indices)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_planned_for_the_whole_training(kind: str) -> None:
    planned = sampler(LENGTHS, kind, epochs=2.25)
    shares = list(planned)
    assert [share.step for share in shares] == list(range(1, planned.steps + 1))
    assert shares[-1].epoch == pytest.approx(2.25, abs=0.01)
    assert np.all(np.diff([share.epoch for share in shares]) > 0)
    rows = np.concatenate([share.indices for share in shares if share.epoch <= 2])
    assert np.all(np.bincount(rows) == 2)


def test_parts_of_an_epoch() -> None:
    assert sampler(LENGTHS[:80], "length", epochs=1.5).steps == 15
    assert sampler(LENGTHS[:80], "length", epochs=1.2).steps == 12
    assert sampler(LENGTHS[:80], "length", epochs=0.001).steps == 1


def test_the_steps_that_are_scored() -> None:
    assert sampler(LENGTHS[:80], "length", epochs=1.2, evaluations=2).evaluated == {5, 10, 12}
    assert evaluation_steps([10, 10], 15, evaluations=2) == {5, 10, 15}
    assert evaluation_steps([10, 10], 15, evaluations=1000) == set(range(1, 16))
    assert evaluation_steps([9, 12, 10], 31, evaluations=3) == {3, 6, 9, 13, 17, 21, 24, 28, 31}


@pytest.mark.parametrize(("rows", "count", "sizes"), [(7, 1, [7]), (7, 3, [3, 2, 2]), (2, 4, [1, 1]), (1, 8, [1])])
def test_a_share_in_parts_is_the_share(rows: int, count: int, sizes: list[int]) -> None:
    share = RankBatch(3, 0.5, np.arange(10, 10 + rows), 0.125, 2 * rows, parts=2)
    parts = share.micro_batches(count)
    assert [len(part.indices) for part in parts] == sizes
    assert np.array_equal(np.concatenate([part.indices for part in parts]), share.indices)
    assert {(part.step, part.epoch, part.weight, part.rows) for part in parts} == {(3, 0.5, 0.125, 2 * rows)}


def test_ranks_with_fewer_rows_than_others_run_as_many_passes() -> None:
    for batch_size in (5, 1):  # of three ranks, one has fewer rows, or two have none
        shares = [next(iter(sampler(LENGTHS[:5], "static", rank, 3, batch_size=batch_size))) for rank in range(3)]
        passes = [share.micro_batches(2) for share in shares]
        assert len({len(one) for one in passes}) == 1
        counted = [len(part.indices) for one in passes for part in one if part.weight]
        assert sum(counted) == batch_size and all(len(part.indices) for one in passes for part in one)


def test_a_batch_can_be_padded_further_than_its_longest_row(tmp_path: Path) -> None:
    table = TokenTable.open(write_split(tmp_path / "train", *reviews(20)))
    batch, further = table.batch(np.arange(5)), table.batch(np.arange(5), 64)
    width = batch.input_ids.shape[1]
    assert further.input_ids.shape == further.token_type_ids.shape == (5, 64)
    assert further.attention_mask[:, :width].equal(batch.attention_mask)
    assert further.input_ids[:, :width].equal(batch.input_ids)
    assert not further.attention_mask[:, width:].any()


def test_the_tables_must_fit(tmp_path: Path) -> None:
    model = load_pretrained(tiny_encoder(tmp_path / "encoder"), HeadSpec("classification", 2, max_length=32))
    sentences, labels = reviews(20)
    table = TokenTable.open(write_split(tmp_path / "train", sentences, labels))
    check(table, model)
    three = TokenTable.open(write_split(tmp_path / "three", sentences, [2] * 20))
    with pytest.raises(BadInput, match="labels from 2 to 2, but the task has 2 classes"):
        check(three, model)
    with pytest.raises(BadInput, match="has no rows"):
        check(TokenTable.open(write_split(tmp_path / "empty", [], [])), model)
    small = load_pretrained(tiny_encoder(tmp_path / "small"), HeadSpec("classification", 2, max_length=32))
    small.encoder.config.vocab_size = len(WORDS) - 20
    with pytest.raises(BadInput, match="made with another tokenizer"):
        check(table, small)


def test_a_fixed_batch_must_not_be_larger_than_the_data(tmp_path: Path) -> None:
    table = TokenTable.open(write_split(tmp_path / "train", *reviews(20)))
    for kind in ("length", "static"):
        with pytest.raises(BadInput, match="batch_size is 32, but only 20 rows are left to train on: write 20 or less"):
            check_batch_size(table, batching(kind), batch_size=32, ranks=2)
    for kind in ("tokens", "tiers"):
        check_batch_size(table, batching(kind), batch_size=32, ranks=2)
