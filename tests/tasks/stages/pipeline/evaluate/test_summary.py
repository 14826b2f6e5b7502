"""What metrics.json says, against figures counted by hand."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sk

from include.glue import TASKS
from include.named_experiments import build
from include.stages import BadInput
from tasks.scoring.intervals import of_share
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.slices import check_gate
from tasks.stages.pipeline.evaluate.rows import worst
from tasks.stages.pipeline.evaluate.summary import by_confidence, operating_points, summarize
from tests.tasks.encoder.samples import write_split
from tests.tasks.stages.pipeline.evaluate.made_up import made_up, of_classes


def scored(labels: list[int], right: list[float], texts: list[str] | None = None) -> ScoredSplit:
    """SST-2 rows by the probability that their right label got."""
    share = np.array(right)[:, None]
    logits = np.log(np.where(np.eye(2)[labels] == 1, share, 1 - share))
    sentences = [(text,) for text in texts or ["a text"] * len(labels)]
    return ScoredSplit(TASKS["SST-2"], np.arange(len(labels)) + 10, np.array(labels), logits, sentences)


def test_overall(sst2: ScoredSplit) -> None:
    summary = summarize(sst2)
    predicted = sst2.logits.argmax(axis=1)
    assert summary["rows"] == 120
    assert summary["metrics"]["accuracy"] == pytest.approx((predicted == sst2.labels).mean())
    assert summary["interval"][0] < summary["metrics"]["accuracy"] < summary["interval"][1]
    assert summary["heldout"] is None
    assert summary["classes"]["positive"]["f1"] == pytest.approx(summary["metrics"]["f1"])
    assert summary["confusion"] == sk.confusion_matrix(sst2.labels, predicted).tolist()


def test_held_out_beside_dev(stsb: ScoredSplit) -> None:
    summary = summarize(stsb, made_up("STS-B", 30))
    assert summary["heldout"]["rows"] == 30
    assert set(summary["heldout"]["metrics"]) == {"pearson", "spearman", "mse", "rmse", "mae", "r2"}
    assert "confusion" not in summary


def test_a_class_without_rows_is_left_out_of_every_mean() -> None:
    """As scikit-learn's macro average has it, which is what the gate compares."""
    dev = of_classes(["a", "b", "c", "d"], 40)
    labels = dev.labels % 2
    dev = dataclasses.replace(dev, labels=labels, logits=np.eye(4)[np.where(np.arange(40) < 30, labels, 2)])
    summary = summarize(dev)
    expected = sk.f1_score(labels, dev.predicted, average="macro", zero_division=0)  # over a, b, and c, but not d
    assert summary["metrics"]["f1"] == summary["averages"]["macro"]["f1"] == pytest.approx(expected)
    assert summary["metrics"]["precision"] == summary["averages"]["macro"]["precision"]
    assert [row["rows"] for row in summary["classes"].values()][2:] == [0, 0]


@pytest.mark.parametrize(
    ("name", "words", "empty"), [("label:d", 1, True), ("label:a", 1, False), ("length:medium", 0, True)]
)
def test_a_gate_on_an_empty_slice_is_refused_before_the_training(
    tmp_path: Path, name: str, words: int, empty: bool
) -> None:
    texts = [("word1 " * (1 + words * number),) for number in range(8)]
    write_split(tmp_path / "dev", texts, [0, 1, 2, 1] * 2)
    data = {"task": "classification", "source": "files", "path": "x", "labels": ["a", "b", "c", "d"]}
    experiment = build({"data": data, "gate": {"accuracy": 0, "slices": {name: 0.5}}}, "test")
    with pytest.raises(BadInput, match=f'gate.slices names "{name}", but none of the 8') if empty else nullcontext():
        check_gate(experiment, tmp_path / "dev")


@pytest.mark.parametrize("name", ["SST-2", "STS-B", "MNLI", "CoLA"])
def test_is_json_without_nan(name: str) -> None:
    json.dumps(summarize(made_up(name)), allow_nan=False)


@pytest.mark.parametrize("name", ["SST-2", "STS-B", "MNLI"])
def test_gate_can_name_just_these_slices(name: str) -> None:
    assert set(summarize(made_up(name))["slices"]) == set(TASKS[name].slices)


def test_constant_scores_are_null(stsb: ScoredSplit) -> None:
    flat = dataclasses.replace(stsb, logits=np.full((len(stsb), 1), 2.5))
    summary = summarize(flat)
    assert summary["metrics"]["pearson"] is None
    assert summary["interval"] is None
    assert summary["slices"]["length:short"]["pearson"] is None


def test_lengths_are_thirds_with_their_bounds() -> None:
    texts = [" ".join(["word"] * words) for words in (1, 2, 3, 4, 5, 6, 7, 8, 9)]
    found = summarize(scored([0, 1] * 4 + [0], [0.9] * 6 + [0.1] * 3, texts))["slices"]
    assert [found[f"length:{name}"]["rows"] for name in ("short", "medium", "long")] == [3, 3, 3]
    assert [found[f"length:{name}"]["about"] for name in ("short", "medium", "long")] == [
        "up to 3 words", "4 to 6 words", "7 words and more",
    ]  # fmt: skip
    assert [found[f"length:{name}"]["accuracy"] for name in ("short", "medium", "long")] == [1, 1, 0]


def test_every_row_is_in_one_length_and_one_label(sst2: ScoredSplit) -> None:
    found = summarize(sst2)["slices"]
    for kind in ("length:", "label:"):
        assert sum(entry["rows"] for name, entry in found.items() if name.startswith(kind)) == len(sst2)


def test_rows_of_equal_length_are_one_slice() -> None:
    found = summarize(scored([0, 1, 1], [0.9, 0.9, 0.9]))["slices"]
    assert "length:medium" not in found
    assert found["length:short"]["rows"] == 3


def test_a_labels_slice_has_its_recall() -> None:
    found = summarize(scored([1, 1, 1, 0], [0.9, 0.9, 0.2, 0.8]))["slices"]["label:positive"]
    assert found == {
        "about": "labeled positive", "rows": 3, "metric": "recall", "recall": pytest.approx(2 / 3),
        "interval": of_share(2, 3),
    }  # fmt: skip


def test_accuracy_of_the_most_confident() -> None:
    rows = scored([0, 1, 0, 1, 0], [0.99, 0.95, 0.1, 0.2, 0.6])  # confidence .99 .95 .9 .8 .6, the third, fourth wrong
    assert [(row["rows"], row["accuracy"]) for row in by_confidence(rows)] == [
        (1, 1.0), (2, 1.0), (3, pytest.approx(2 / 3)), (4, 0.5), (5, 0.6),
    ]  # fmt: skip
    assert by_confidence(rows)[2]["confidence"] == pytest.approx(0.9)


def test_the_confidence_that_a_risk_needs() -> None:
    """Of 400 rows, the less confident half is right every second time."""
    found = summarize(scored([0, 1] * 200, [0.99] * 200 + [0.6, 0.4] * 100))["risk"]
    assert [row["max_risk"] for row in found] == [0.01, 0.02, 0.05, 0.1]
    assert found[0] == {"max_risk": 0.01, "confidence": None, "answered": 0, "error": None}
    assert [(row["answered"], row["error"]) for row in found[1:]] == [(0.5, 0)] * 3
    assert all(0.6 < row["confidence"] <= 0.99 for row in found[1:])


def test_calibration_before_and_after() -> None:
    """A model that says 99.9 % and is right in 80 % of the rows."""
    labels = [0, 1] * 100
    dev = scored(labels, [0.999 if row % 5 else 0.001 for row in range(200)]).cross_fitted()
    found = summarize(dev)["calibration"]
    assert found["before"]["ece"] == pytest.approx(0.199) and found["ece"] < 0.05
    assert found["before"]["interval"][0] > 0.1 > found["interval"][1]
    assert [one["confidence"] for one in found["before"]["bins"]] == pytest.approx([0.999])


def test_the_surest_mistakes_come_first() -> None:
    found = worst(scored([0, 1, 0], [0.3, 0.1, 0.9], ["dull", "fine", "grey"]))
    assert [(row["row"], row["sentences"], row["label"], row["prediction"]) for row in found] == [
        (11, ("fine",), "positive", "negative"), (10, ("dull",), "negative", "positive"),
    ]  # fmt: skip
    assert found[0]["confidence"] == pytest.approx(0.9)


def test_the_largest_errors_come_first() -> None:
    rows = ScoredSplit(
        TASKS["STS-B"], np.arange(3), np.array([1.0, 2, 3]), np.array([[1.5], [0], [3]]), [("a", "b")] * 3
    )
    assert [(row["row"], row["error"]) for row in worst(rows)[:2]] == [(1, -2.0), (0, 0.5)]


def test_thresholds_against_counting() -> None:
    """Positive rows have .9 .6 .4, negative ones .7 .2 .1."""
    rows = scored([1, 1, 1, 0, 0, 0], [0.9, 0.6, 0.4, 0.3, 0.8, 0.9])
    found = operating_points(rows)
    assert found is not None
    assert found.roc_auc == pytest.approx(7 / 9)  # of nine pairs, .7 stands above .6 and .4
    assert found.average_precision == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    half, best = found.points
    assert (half["precision"], half["recall"], half["false_positive_rate"]) == pytest.approx((2 / 3, 2 / 3, 1 / 3))
    assert (best["threshold"], best["precision"], best["recall"]) == pytest.approx((0.4, 3 / 4, 1))


def test_no_thresholds_for_one_class_or_three() -> None:
    assert operating_points(scored([1, 1], [0.9, 0.2])) is None
    assert operating_points(made_up("MNLI")) is None


def test_shares_and_intervals_of_classes() -> None:
    found = summarize(scored([1, 1, 1, 0], [0.9, 0.9, 0.2, 0.8]))["classes"]
    assert (found["positive"]["share"], found["positive"]["recall_interval"]) == (0.75, of_share(2, 3))
    assert found["negative"]["precision_interval"] == of_share(1, 2)
    low, high = found["positive"]["f1_interval"]
    assert low < found["positive"]["f1"] <= high
    nothing = summarize(scored([1, 1], [0.9, 0.9]))["classes"]["negative"]
    assert (nothing["recall_interval"], nothing["precision_interval"], nothing["f1_interval"]) == (None, None, None)
