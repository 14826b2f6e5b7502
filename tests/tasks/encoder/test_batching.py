from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from include.stages import BadInput
from tasks.encoder.batching import TokenTable, length_batches
from tests.tasks.encoder.samples import reviews, stories, tokenizer, write_split


@pytest.fixture
def table(tmp_path: Path) -> TokenTable:
    return TokenTable.open(write_split(tmp_path / "train", *reviews(57), parts=3))


def test_rows_lengths_labels_and_sentences_come_back_across_parts_and_record_batches(table: TokenTable) -> None:
    sentences, labels = reviews(57)
    assert len(table) == 57
    assert table.rows.tolist() == list(range(57))
    assert table.labels.tolist() == labels
    assert table.lengths.tolist() == [len(text.split()) + 2 for (text,) in sentences]
    assert table.sentences(np.array([56, 0, 23])) == [sentences[56], sentences[0], sentences[23]]


def test_a_batch_holds_the_rows_ids_padded_and_masked(table: TokenTable) -> None:
    sentences, labels = reviews(57)
    chosen = np.array([40, 3, 25, 11])
    batch = table.batch(chosen)
    for row, index in enumerate(chosen):
        ids = tokenizer().encode(*sentences[index]).ids
        assert batch.input_ids[row, : len(ids)].tolist() == ids
        assert batch.attention_mask[row].sum() == len(ids)
        assert not batch.input_ids[row, len(ids) :].any()
    assert batch.input_ids.shape[1] == table.lengths[chosen].max()
    assert batch.labels.tolist() == [labels[index] for index in chosen]
    assert not batch.token_type_ids.any()


def test_ids_are_views_of_the_mapped_file(table: TokenTable) -> None:
    assert table.ids(5).base is not None
    assert table.ids(5).dtype == np.uint16
    assert not table.ids(5).flags.writeable


def test_the_second_sentence_is_segment_one(tmp_path: Path) -> None:
    pairs = [("good word1", "bad"), ("word1 word2 word3", "word4 word5")]
    batch = TokenTable.open(write_split(tmp_path / "dev", pairs, [0.5, 4.0])).batch(np.array([0, 1]))
    assert batch.token_type_ids.tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1]]
    assert batch.labels.dtype == torch.float32
    assert batch.labels.tolist() == [0.5, 4.0]


def test_a_split_without_labels_says_so(tmp_path: Path) -> None:
    table = TokenTable.open(write_split(tmp_path / "test", reviews(5)[0], None))
    assert not table.labeled
    assert len(table.batch(np.arange(5)).labels) == 0
    with pytest.raises(BadInput, match="has no labels"):
        _ = table.labels


def test_an_empty_split_is_a_table_of_no_rows(tmp_path: Path) -> None:
    table = TokenTable.open(write_split(tmp_path / "test", [], [], parts=1))
    assert len(table) == table.largest_id() == 0


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"contains no part-\*\.arrow"):
        TokenTable.open(tmp_path)
    file = write_split(tmp_path / "train", *reviews(5), parts=1) / "part-00000.arrow"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(BadInput, match="damaged Arrow file"):
        TokenTable.open(tmp_path / "train")


def test_batches_of_a_size_hold_every_row_once_longest_first() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, 103)
    batches = length_batches(lengths, batch_size=10)
    assert sorted(np.concatenate(batches)) == list(range(103))
    assert [len(batch) for batch in batches] == [10] * 10 + [3]
    assert np.all(np.diff(lengths[np.concatenate(batches)]) <= 0)


def test_batches_of_tokens_stay_within_the_budget() -> None:
    lengths = np.append(np.random.default_rng(0).integers(3, 60, 103), 500)
    batches = length_batches(lengths, batch_tokens=256)
    assert sorted(np.concatenate(batches)) == list(range(104))
    assert batches[0].tolist() == [103]  # longer than the budget: alone
    assert all(len(batch) * lengths[batch].max() <= 256 for batch in batches[1:])


def test_batches_of_tokens_have_few_shapes() -> None:
    lengths = np.random.default_rng(0).integers(3, 65, 5000)
    batches = length_batches(lengths, batch_tokens=2048, padded=lambda tokens: -(-tokens // 8) * 8)
    assert sorted(np.concatenate(batches)) == list(range(5000))
    steps = [-(-int(lengths[batch].max()) // 8) * 8 for batch in batches]
    assert all(len(batch) * longest <= 2048 for batch, longest in zip(batches, steps, strict=True))
    shapes = {(len(batch), longest) for batch, longest in zip(batches[:-1], steps, strict=False)}
    assert len(shapes) == len(set(steps)) <= 8
    assert all(rows % 8 == 0 for rows, _ in shapes)


def test_the_windows_of_a_document_are_found_across_parts(tmp_path: Path) -> None:
    words = tokenizer()
    words.enable_truncation(12, stride=3)
    texts, labels = stories(20)
    table = TokenTable.open(write_split(tmp_path / "dev", texts, labels, parts=5, words=words, stride=3))
    assert len(table) > len(table.documents) == 20
    assert table.rows[table.documents].tolist() == list(range(20))
    assert table.labels[table.documents].tolist() == labels
    assert table.sentences(table.documents) == texts
    chosen = np.array([0, 7, 8, 19])
    assert table.windows(chosen).tolist() == np.flatnonzero(np.isin(table.rows, chosen)).tolist()
    assert table.windows(np.arange(20)).tolist() == list(range(len(table)))
