from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from include.stages import BadInput
from tasks.encoder.batching import Array
from tasks.training.masking import IGNORED, Masking, Vocabulary
from tests.tasks.stages.pipeline.pretrain.samples import CLS, MASK, PIECES, SEP, SPECIAL, tiny_encoder

ROWS, WORDS = 200, 100
VOCABULARY = Vocabulary(MASK, np.arange(1000) >= len(SPECIAL), np.zeros(1000, bool))
MASKING = Masking(VOCABULARY, share=0.15, whole_words=False, seed=1)


@pytest.fixture(scope="module")
def hidden() -> tuple[Array, Array, Array]:
    """True ids, what is seen and labels of rows of 100 ordinary words, [rows, words + 2] each."""
    words = np.random.default_rng(0).integers(len(SPECIAL), 1000, (ROWS, WORDS))
    ids = np.pad(words, ((0, 0), (1, 1)), constant_values=((0, 0), (CLS, SEP))).astype(np.uint16)
    seen, labels = zip(*(MASKING.hide(row, 1, number) for number, row in enumerate(ids)), strict=True)
    return ids, np.array(seen), np.array(labels)


def within(count: int, trials: int, share: float) -> bool:
    """Whether a count lies within four standard deviations of a binomial's mean."""
    return bool(abs(count - trials * share) < 4 * np.sqrt(trials * share * (1 - share)))


def test_labels_are_the_true_ids_of_the_hidden_tokens_and_nothing_else(hidden: tuple[Array, Array, Array]) -> None:
    ids, seen, labels = hidden
    chosen = labels != IGNORED
    assert np.array_equal(labels[chosen], ids[chosen])
    assert np.array_equal(seen[~chosen], ids[~chosen])
    assert not chosen[:, [0, -1]].any()  # special tokens
    assert (chosen.sum(1) == 15).all() and {MASKING.count(row) for row in ids} == {15}


def test_every_word_is_as_likely_and_80_10_10_are_masked_replaced_and_kept(hidden: tuple[Array, Array, Array]) -> None:
    ids, seen, labels = hidden
    chosen = labels != IGNORED
    assert all(within(count, ROWS, 0.15) for count in chosen[:, 1:-1].sum(0))
    masked, kept = seen[chosen] == MASK, seen[chosen] == ids[chosen]
    total = ROWS * 15
    assert within(masked.sum(), total, 0.8)
    assert within(kept.sum(), total, 0.1 + 0.1 / 1000)  # a random word may be the true one
    replacing = seen[chosen][~masked & ~kept]
    assert replacing.min() >= len(SPECIAL) and len(set(replacing)) > 0.8 * len(replacing)


def test_what_is_hidden_is_a_function_of_seed_step_and_row() -> None:
    ids = np.arange(len(SPECIAL), 105)

    def labels(seed: int, step: int, row: int) -> list[int]:
        return [int(label) for label in replace(MASKING, seed=seed).hide(ids, step, row)[1]]

    assert labels(1, 2, 3) == labels(1, 2, 3)
    assert len({tuple(labels(*key)) for key in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4))}) == 4


def test_a_short_row_has_one_hidden_token() -> None:
    ids = np.array([CLS, 7, SEP])
    assert MASKING.count(ids) == 1
    assert MASKING.hide(ids, 1, 1)[1].tolist() == [IGNORED, 7, IGNORED]


def test_whole_words_are_hidden_together(tmp_path: Path) -> None:
    vocabulary = Vocabulary.read(tiny_encoder(tmp_path / "encoder"))
    play, ing, er = (PIECES.index(piece) for piece in ("play", "##ing", "##er"))
    word = PIECES.index("word1")
    ids = np.array([ing, CLS, play, ing, er, *[word] * 12, play, er, *[word] * 3, SEP])  # a row may begin inside a word
    words = [(0,), (2, 3, 4), *((place,) for place in range(5, 17)), (17, 18), (19,), (20,), (21,)]
    whole, parts = Masking(vocabulary, 0.3, True, 1), Masking(vocabulary, 0.3, False, 1)
    torn = 0
    for step in range(200):
        chosen = set(np.flatnonzero(whole.hide(ids, step, 0)[1] != IGNORED).tolist())
        assert sum(chosen.issuperset(places) for places in words) == 5  # 0.3 of 18 words, rounded
        assert all(chosen.isdisjoint(places) or chosen.issuperset(places) for places in words)
        loose = set(np.flatnonzero(parts.hide(ids, step, 0)[1] != IGNORED).tolist())
        torn += any(0 < len(loose.intersection(places)) < len(places) for places in words)
    assert torn > 100


@pytest.mark.parametrize("whole", [True, False])
def test_in_a_short_row_pieces_are_hidden_as_often_as_single_words(whole: bool) -> None:
    """A word of four pieces among nine that are one token each; a step hides two of the ten words."""
    continues = np.isin(np.arange(1000), [101, 102, 103])
    masking = Masking(replace(VOCABULARY, continues=continues), 0.2, whole, seed=1)
    ids, steps = np.array([CLS, *range(10, 19), 100, 101, 102, 103, SEP]), 2000
    chosen = np.array([masking.hide(ids, step, 0)[1] != IGNORED for step in range(steps)])
    share = 0.2 if whole else 3 / 13
    assert all(within(count, steps, share) for count in chosen[:, 1:-1].sum(0))
    assert masking.count(ids) == pytest.approx(13 * share)
    assert abs(chosen.sum(1).mean() - masking.count(ids)) < 0.15
    pieces = chosen[:, 10:14]
    assert (pieces.all(1) == pieces.any(1)).all() == whole


def test_a_row_without_words_hides_nothing() -> None:
    ids = np.array([CLS, SEP])
    assert MASKING.count(ids) == 1  # of a batch's divisor
    assert (MASKING.hide(ids, 1, 1)[1] == IGNORED).all()


def test_whole_words_need_a_vocabulary_that_tells_them() -> None:
    with pytest.raises(BadInput, match=r"needs an encoder with a WordPiece vocabulary.*whole_words: false"):
        Masking(VOCABULARY, 0.15, True, 1)


def test_a_tokenizer_without_mask_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no mask token"):
        Vocabulary.read(tiny_encoder(tmp_path / "encoder", mask_token=None))


def test_special_tokens_are_known_by_the_tokenizer(tmp_path: Path) -> None:
    vocabulary = Vocabulary.read(tiny_encoder(tmp_path / "encoder"))
    assert [PIECES[number] for number in np.flatnonzero(~vocabulary.ordinary)] == SPECIAL
    assert [PIECES[number] for number in np.flatnonzero(vocabulary.continues)] == ["##ing", "##er", "##s"]
    assert vocabulary.mask == MASK
