"""Drift windows: which batches they join, what they say, and that more batches do not change them."""

from __future__ import annotations

import json

import pytest

from include.fields.retraining import Dataset
from tasks.scoring.drift import DriftWindow, Profile, Tally, drift_windows

TRAINED = Profile.of("classification", [("a good film",), ("a bad film",)] * 10, ["good", "bad"] * 10)


def tally(batch: int, rows: int, version: str = "1", text: str = "a film", label: str = "good") -> Tally:
    profile = Profile.of("classification", [(text,)] * rows, [label] * rows)
    return Tally(batch, version, profile, rows * 0.75)


def joined(tallies: list[Tally], rows: int = 10) -> list[DriftWindow]:
    return drift_windows(tallies, rows, {"1": TRAINED}, Dataset())


def spans(found: list[DriftWindow]) -> list[tuple[int, int, int]]:
    return [(window.first, window.tally.batch, window.tally.profile.rows) for window in found]


def test_batches_are_joined_until_there_are_enough_rows() -> None:
    found = joined([tally(batch, rows) for batch, rows in enumerate([4, 4, 4, 30, 0, 9, 0, 1, 9])])
    assert spans(found) == [(0, 2, 12), (3, 3, 30), (5, 7, 10)]


def test_further_batches_and_another_order_change_no_window() -> None:
    tallies = [tally(batch, 1 + batch * 5 % 7, version=str(1 + batch // 11)) for batch in range(40)]
    whole = joined(tallies)
    assert len(whole) > 8
    for end in range(40):
        earlier = joined(tallies[:end])
        assert earlier == whole[: len(earlier)]
    for place, window in enumerate(whole, 1):
        assert joined([each for each in tallies if each.batch > window.tally.batch]) == whole[place:]
    assert joined(tallies[::-1]) == whole


def test_a_window_ends_where_the_model_changes_and_has_no_verdict_if_it_has_too_few_rows() -> None:
    found = joined([tally(1, 12), tally(2, 4), tally(3, 12, "2"), tally(4, 10)])
    assert spans(found) == [(1, 1, 12), (2, 2, 4), (3, 3, 12), (4, 4, 10)]
    assert [window.tally.model_version for window in found] == ["1", "1", "2", "1"]
    assert [window.passed for window in found] == [False, None, None, False]  # nobody knows the rows of version 2
    assert found[1].figures == [] and found[1].reasons == []


def test_a_window_says_what_has_changed() -> None:
    [window] = joined([tally(1, 6, text="a bad film", label="bad"), tally(2, 4, text="a good flick")])
    assert json.loads(json.dumps(window.as_json())) == {
        "first": 1, "last": 2, "model_version": "1", "rows": 10, "labels": {"bad": 0.6, "good": 0.4},
        "confidence": 0.75, "passed": True, "reasons": [], "figures": [figure.as_json() for figure in window.figures],
    }  # fmt: skip
    assert [figure.value for figure in window.figures] == pytest.approx([0.1, 0, 4 / 30])
    [drifted] = joined([tally(1, 10)])
    assert drifted.passed is False and drifted.as_json()["reasons"] == [
        "the drift of label balance is 0.500 (total variation distance), above dataset.max_label_drift = 0.2",
        "the drift of length is 1.000 (Kolmogorov-Smirnov, in words), above dataset.max_length_drift = 0.25",
    ]


def test_scores_have_a_mean_and_no_confidence() -> None:
    profiles = [Profile.of("regression", [("a",)] * len(scores), scores) for scores in ([1.0, 2.0], [2.0, 5.0])]
    [window] = joined([Tally(at, "2", profile) for at, profile in enumerate(profiles)], rows=4)
    said = window.as_json()
    assert said["scores"] == {"mean": 2.5, "standard_deviation": 1.5} and "labels" not in said
    assert said["confidence"] is None and said["passed"] is None


def test_a_tally_is_kept_as_json() -> None:
    for each in (tally(3, 5), Tally(4, "2", Profile.of("regression", [("a b",)], [0.1]))):
        assert Tally.from_json(json.loads(json.dumps(each.as_json()))) == each
