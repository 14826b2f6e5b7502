"""Profiles: counted in parts, kept as JSON, and compared as if the rows themselves were at hand."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from include.artifacts import write_json
from include.fields.retraining import Dataset
from include.glue import Kind
from include.stages import BadInput
from tasks.scoring.drift import PROFILE, Profile, measure, read_profile

WORDS = np.array(["film", "Film", "plot", "good,", "naïve", "don't", "3rd", "--"])
LABELS = ("bad", "good", "so-so")
KINDS: list[Kind] = ["classification", "multilabel", "regression"]


def rows(kind: Kind, count: int) -> tuple[list[tuple[str, str]], list[Any]]:
    """Pairs of sentences, some of them empty, with labels of the kind."""
    random = np.random.default_rng(0)
    texts = [(" ".join(random.choice(WORDS, random.integers(8))), "an end") for _ in range(count)]
    labels = {
        "classification": random.choice(LABELS, count, p=(0.2, 0.3, 0.5)).tolist(),
        "multilabel": [np.array(LABELS)[random.random(3) < 0.4].tolist() for _ in range(count)],
        "regression": random.normal(2.5, 1, count).tolist(),
    }
    return texts, labels[kind]


def test_words_are_counted_without_regard_to_case() -> None:
    profile = Profile.of("multilabel", [("A film, a Film!", "It's 2 Straße"), ("",)], [["x", "y", "x"], []])
    assert profile.words == {"a": 2, "film": 2, "it": 1, "s": 1, "2": 1, "strasse": 1}
    assert profile.lengths == {8: 1, 0: 1} and profile.rows == 2
    assert profile.labels == {"x": 1, "y": 1} and profile.shares == {"x": 0.5, "y": 0.5}


@pytest.mark.parametrize("kind", KINDS)
def test_parts_add_up_to_the_whole(kind: Kind) -> None:
    texts, labels = rows(kind, 50)
    cuts = [0, 0, 7, 49, 50]
    parts = [Profile.of(kind, texts[a:b], labels[a:b]) for a, b in pairwise(cuts)]
    joined = sum(reversed(parts), Profile.of(kind, [], []))
    whole = Profile.of(kind, texts, labels)
    assert joined == whole and whole.rows == 50
    assert json.dumps(joined.as_json()) == json.dumps(whole.as_json())


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_keeps_the_profile(kind: Kind, tmp_path: Path) -> None:
    assert read_profile(tmp_path) is None
    profile = Profile.of(kind, *rows(kind, 50))
    write_json(tmp_path / PROFILE, profile.as_json())
    assert read_profile(tmp_path) == profile


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"kind": "regression", "labels": {"good": 1}}'])
def test_a_damaged_profile_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / PROFILE).write_text(content)
    with pytest.raises(BadInput, match=r"profile.json is damaged \(.*package the model again"):
        read_profile(tmp_path)


def test_the_statistic_of_counts_is_that_of_the_samples() -> None:
    for seed in range(20):
        random = np.random.default_rng(0)
        one, two = (random.normal(random.random(), 1, random.integers(1, 40)).round(seed % 3).tolist() for _ in "ab")
        old, new = (Profile.of("regression", [("word " * int(abs(at)),) for at in some], some) for some in (one, two))
        scores, lengths, _ = measure(old, new, Dataset())
        assert scores.value == pytest.approx(stats.ks_2samp(one, two).statistic, abs=1e-15)
        words = [[int(abs(at)) for at in some] for some in (one, two)]
        assert lengths.value == pytest.approx(stats.ks_2samp(*words).statistic, abs=1e-15)


def test_a_label_that_only_one_side_has_counts() -> None:
    texts = [("a b",)] * 4
    old, new = Profile.of("classification", texts, "xxxy"), Profile.of("classification", texts, "xzzz")
    assert measure(old, new, Dataset())[0].value == pytest.approx(0.75)
    old, new = (Profile.of("multilabel", texts, labels) for labels in ([["x"], ["x"], [], []], [["z"], [], [], []]))
    assert measure(old, new, Dataset())[0].value == pytest.approx(0.5)
    none = Profile.of("multilabel", texts, [[]] * 4)
    assert [figure.value for figure in measure(none, none, Dataset())] == [0, 0, 0]


def test_rows_without_words_have_no_unknown_ones() -> None:
    old, new = (Profile.of("classification", [(text,)], ["x"]) for text in ("a b", "..."))
    _, length, vocabulary = measure(old, new, Dataset())
    assert (length.value, vocabulary.value) == (1, 0)
    assert length.reason == (
        "the drift of length is 1.000 (Kolmogorov-Smirnov, in words), above dataset.max_length_drift = 0.25"
    )
    assert length.as_json()["passed"] is False and vocabulary.as_json()["passed"] is True
