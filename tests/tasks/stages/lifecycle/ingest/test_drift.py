"""Drift: the figures against their definitions, and a refusal for each limit."""

from __future__ import annotations

import dataclasses
import json
from io import StringIO

import numpy as np
import pytest
from scipy import stats

from include.fields.retraining import Dataset
from include.glue import TASKS
from include.stages import ExitCode
from tasks.sources import Record
from tasks.sources.quarantine import Quarantine
from tasks.stages.lifecycle.ingest.selection import measure_drift, select
from tasks.stages.lifecycle.ingest.version import Row, UsableRows
from tests.tasks.stages.lifecycle.ingest.homes import Home

LIKE_TRAIN = [f"sentence train {number}\t{number % 2}" for number in range(100)]


def rows(*texts: str, labels: str = "0") -> list[Row]:
    return [Row((text,), labels[place % len(labels)], place, place) for place, text in enumerate(texts)]


def test_the_figures_are_what_they_are_called() -> None:
    old = rows("a b", "a b c", "A, b! C d", "a", labels="0001")
    new = rows("a b c e", "e e e e", labels="1")
    label, length, vocabulary = measure_drift(old, new, TASKS["SST-2"], Dataset())
    assert label.value == pytest.approx(0.75)
    assert length.value == pytest.approx(stats.ks_2samp([2, 3, 4, 1], [4, 4]).statistic)
    assert vocabulary.value == pytest.approx(5 / 8)
    assert [figure.field for figure in (label, length, vocabulary)] == [
        "dataset.max_label_drift", "dataset.max_length_drift", "dataset.max_vocabulary_drift",
    ]  # fmt: skip


def test_scores_are_compared_by_their_distribution() -> None:
    one, two = np.random.default_rng(0).uniform(0, 5, (2, 50)).round(1)
    old, new = ([Row(("a b",), str(score), 0, 0) for score in scores] for scores in (one, two))
    label, _, _ = measure_drift(old, new, TASKS["STS-B"], Dataset())
    assert label.value == pytest.approx(stats.ks_2samp(one, two).statistic)


@pytest.mark.parametrize(
    ("field", "row", "reason"),
    [
        ("max_label_drift", "sentence train {n}\t1", "label balance is 0.500 (total variation distance), above"),
        ("max_length_drift", "sentence train train {n}\t{c}", "length is 1.000 (Kolmogorov-Smirnov, in words), above"),
        ("max_vocabulary_drift", "sentence tram {n}\t{c}", "vocabulary is 0.333 (share of unknown words), above"),
    ],
)
def test_drift_above_a_limit_is_refused_with_evidence(home: Home, field: str, row: str, reason: str) -> None:
    first = home.ingest()
    home.put("a.tsv", *(row.format(n=number, c=number % 2) for number in range(100)))
    refused = home.ingest("second").manifest
    assert refused.exit_code == ExitCode.GATE_FAILED and home.versions() == [first.manifest.key]
    assert f"the drift of {reason} dataset.{field} = " in refused.message and refused.message.count(" above ") == 1
    found = json.loads((first.path.parent / refused.key / "drift.json").read_text())
    assert [figure["field"] for figure in found["figures"] if not figure["passed"]] == [f"dataset.{field}"]
    assert not (first.path.parent / refused.key / "train.tsv").exists()
    raised = home.ingest("second", **{field: 1})
    assert home.versions()[0] == raised.manifest.key


def test_rows_like_the_known_ones_pass(home: Home) -> None:
    home.ingest()
    home.put("a.tsv", *LIKE_TRAIN)
    assert home.ingest("second").manifest.result["drift"] == {
        "label balance": 0, "length": 0, "vocabulary": 0,
    }  # fmt: skip


def test_padded_rows_are_measured_but_not_refused(home: Home) -> None:
    home.ingest()
    home.put("a.tsv", *(f"film {number}\t1" for number in range(99)))
    accepted = home.ingest("second").manifest
    assert accepted.exit_code == ExitCode.DONE and accepted.result["drift"]["vocabulary"] == 0.5


def test_of_several_labels_the_one_that_moved_most_counts() -> None:
    task = dataclasses.replace(TASKS["multi-label"], labels=("x", "y"), label_names=("x", "y"))
    old = [Row(("a b",), cell, 0, 0) for cell in ("x", "x|y", "", "y")]
    new = [Row(("a b",), cell, 0, 0) for cell in ("y|x", "x|x")]
    assert measure_drift(old, new, task, Dataset())[0].value == pytest.approx(0.5)  # x: 2 of 4, then 2 of 2


def test_the_order_of_labels_in_a_cell_does_not_matter() -> None:
    task = dataclasses.replace(TASKS["multi-label"], labels=("x", "y"), label_names=("x", "y"))
    known = {"train": [Row(("one",), "x|y", 1, 1), Row(("two",), "", 2, 2)], "dev": [], "test": []}
    cells = [("one", "y | x", 1), ("two", "x", 2), ("three", "y", 3)]
    fresh = [Row((text,), cell, key, key) for text, cell, key in cells]
    records = [Record(number, number + 2, row.sentences, row.label) for number, row in enumerate(fresh)]
    held = Quarantine(StringIO(), "train", "new.tsv")
    added, counts = select(known, [UsableRows(fresh, records, 3, held)], task)
    assert [row.label for row in added] == ["y"]
    assert (counts["known"], counts["conflict"], counts["added"]) == (1, 1, 1)
