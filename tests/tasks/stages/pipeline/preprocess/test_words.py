"""Changes of a text: what they move, hide and exchange, and what they leave alone."""

from __future__ import annotations

from random import Random

import pytest

from tasks.stages.pipeline.preprocess.augment import mask_words, replace_words, shuffle_words

ODD = ["", " ", "good", "?!", "電影", "é", "\U0001f3ac"]


def words(number: int) -> list[str]:
    return [f"w{place}" for place in range(number)]


def test_words_move_by_three_places_at_most() -> None:
    farthest = 0
    for seed in range(2000):
        text = words(seed % 40)
        moved = shuffle_words(" ".join(text), Random(seed)).split()
        assert sorted(moved) == sorted(text)
        farthest = max([farthest, *(abs(place - moved.index(word)) for place, word in enumerate(text))])
    assert farthest == 3


def test_fifteen_percent_of_the_words_are_masked() -> None:
    masked = 0
    for seed in range(2000):
        number = seed % 40 + 1
        count = mask_words(" ".join(words(number)), "[MASK]", Random(seed)).count("[MASK]")
        assert count < number and abs(count - 0.15 * number) < 1
        masked += count
    assert masked / (2000 * 20.5) == pytest.approx(0.15, abs=0.003)


def test_what_is_between_words_stays() -> None:
    text = "It's  well-made,\tisn\u2019t it: 電影?"
    texts = {mask_words(text, "<mask>", Random(seed)) for seed in range(100)}
    assert "It's  well-made,\tisn\u2019t it: <mask>?" in texts
    assert "It's  well-<mask>,\tisn\u2019t it: 電影?" in texts
    assert "It's  well-made,\t<mask> it: 電影?" in texts


@pytest.mark.parametrize("text", ODD)
def test_a_text_without_a_second_word_is_kept(text: str) -> None:
    assert replace_words(text, {}, Random(0)) == text
    assert mask_words(text, "[MASK]", Random(0)).replace("[MASK]", "a") == text
    assert shuffle_words(text, Random(0)).split() in (text.split(), text.split()[::-1])


def test_a_tenth_of_the_words_are_exchanged_and_one_at_least() -> None:
    table = dict.fromkeys(words(40), ("x", "y"))
    for number in range(1, 40):
        changed = replace_words(" ".join(words(number)), table, Random(number)).split()
        assert sum(word in ("x", "y") for word in changed) == max(1, round(number / 10))


def test_a_synonym_is_written_as_its_word() -> None:
    table = {"film": ("movie",), "école": ("school",)}
    assert replace_words("Film!", table, Random(0)) == "Movie!"
    assert replace_words("the film, dull", table, Random(0)) == "the movie, dull"
    assert replace_words("L' École", table, Random(0)) == "L' School"
    assert replace_words("no word of it", table, Random(0)) == "no word of it"
