"""Windows of long texts, and one result for each document."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from include.stages import BadInput
from tasks.encoder import tokens
from tasks.encoder.batching import Array
from tasks.encoder.windows import first_windows, pool, split
from tests.tasks.encoder.samples import stories, tiny_encoder, tokenizer

LENGTH, STRIDE = 16, 5
TEXTS = [text for (text,) in stories(40)[0]]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder")) / "tokenizer.json"


def windows_of(words: Path, texts: list[str], stride: int) -> tuple[list[list[int]], Array]:
    """The token ids of all windows, and the position of the text of each."""
    encodings = tokens.encode(tokens.open_tokenizer(words, LENGTH, stride), [texts])
    windows, documents = split(encodings, stride)
    return [window.ids for window in windows], documents


@pytest.mark.parametrize("stride", [0, 1, STRIDE, LENGTH - 3])
def test_every_token_is_in_a_window_and_neighbors_share_as_many_as_the_stride(words: Path, stride: int) -> None:
    windows, documents = windows_of(words, TEXTS, stride)
    assert documents.tolist() == sorted(documents.tolist()) and set(documents) == set(range(len(TEXTS)))
    assert len(windows) > 2 * len(TEXTS)
    whole = tokenizer()
    for number, text in enumerate(TEXTS):
        own = [windows[at] for at in np.flatnonzero(documents == number)]
        assert all(ids[0] == 2 and ids[-1] == 3 and len(ids) <= LENGTH for ids in own)
        assert all(len(ids) == LENGTH for ids in own[:-1])
        inner = [ids[1:-1] for ids in own]
        assert all(one[len(one) - stride :] == other[:stride] for one, other in pairwise(inner))
        joined = [*inner[0], *(token for ids in inner[1:] for token in ids[stride:])]
        assert joined == whole.encode(text).ids[1:-1]


def test_a_text_that_fits_is_one_window_with_the_ids_of_truncation(words: Path) -> None:
    short = [text for text in TEXTS if len(text.split()) <= LENGTH - 2]
    windows, documents = windows_of(words, short, STRIDE)
    assert len(short) > 2 and documents.tolist() == list(range(len(short)))
    cut, _ = split(tokens.encode(tokens.open_tokenizer(words, LENGTH), [short]), None)
    assert windows == [encoding.ids for encoding in cut]


def test_truncation_keeps_the_first_window(words: Path) -> None:
    cut, documents = split(tokens.encode(tokens.open_tokenizer(words, LENGTH), [TEXTS]), None)
    windows, of = windows_of(words, TEXTS, STRIDE)
    assert [encoding.ids for encoding in cut] == [windows[at] for at in first_windows(of)]
    assert documents.tolist() == list(range(len(TEXTS)))


def test_a_stride_without_room_for_new_tokens_is_refused(words: Path) -> None:
    with pytest.raises(
        BadInput, match=r"16 tokens, 2 of them special, cannot share 14: write preprocessing.stride: 13"
    ):
        tokens.open_tokenizer(words, LENGTH, LENGTH - 2)


def test_the_logits_of_a_document_are_the_mean_of_its_windows() -> None:
    logits = np.array([[1, 2], [3, 5], [8, 0], [0, 1], [0, 2], [3, 3]], np.float32)
    pooled = pool(logits, np.array([7, 7, 3, 9, 9, 9]))
    assert pooled.dtype == np.float32
    np.testing.assert_allclose(pooled, [[2.0, 3.5], [8.0, 0.0], [1.0, 2.0]])


def test_one_window_each_changes_nothing() -> None:
    logits = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    assert np.array_equal(pool(logits, np.arange(9)), logits)
    assert np.array_equal(pool(np.repeat(logits, 2, axis=0), np.repeat(np.arange(9), 2)), logits)


def test_no_windows_are_no_documents() -> None:
    assert first_windows(np.zeros(0, np.int64)).tolist() == []
    assert pool(np.zeros((0, 2), np.float32), np.zeros(0, np.int64)).shape == (0, 2)
