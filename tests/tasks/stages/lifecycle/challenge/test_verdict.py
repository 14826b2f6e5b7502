"""What refuses a model, and the page that says so, on rows made up by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from markupsafe import escape

from include.fields.retraining import Retraining
from include.glue import TASKS
from tasks.scoring.predictions import Array
from tasks.scoring.scored import ScoredSplit
from tasks.stages.lifecycle.challenge.comparison import Cost, Verdict, judge
from tasks.stages.lifecycle.challenge.report import disagreements, render, rows_lost

CHAMPION = {"model": "cola", "version": "7", "train": "", "evaluate": "", "folder": ""}
FREE = [Cost("latency", "ms", 3.0, 4.0, None, ""), Cost("size", "MB", 90.0, 90.0, None, "")]


def scored(task: str, labels: Array, logits: Array, text: str = "some words") -> ScoredSplit:
    sentences = [(f"{text} {row}",) * len(TASKS[task].sentences) for row in range(len(labels))]
    return ScoredSplit(TASKS[task], np.arange(len(labels)), labels, logits, sentences)


def saying(predicted: Array) -> Array:
    """Logits of two classes for these answers."""
    return 2 * np.eye(2)[predicted]


def held(model: ScoredSplit, champion: ScoredSplit | None, costs: list[Cost] = FREE) -> Verdict:
    return judge(model, champion, CHAMPION, costs, Retraining())


def test_a_classifier_that_says_one_class_only_is_refused_by_the_labels() -> None:
    labels = np.repeat([0, 1], [120, 280])
    even = np.where(np.arange(400) % 10 < 3, 1 - labels, labels)  # 70 % of either class
    verdict = held(scored("CoLA", labels, saying(np.ones(400, int))), scored("CoLA", labels, saying(even)))
    assert verdict.whole is not None and verdict.whole.found.difference == 0
    assert verdict.outcome != "worse" and not verdict.passed
    assert verdict.slices["label:unacceptable"].outcome == "worse"
    assert verdict.slices["label:acceptable"].outcome == "not worse"
    assert verdict.metrics["model"] is not None and verdict.metrics["model"]["matthews"] == 0
    (reason,) = [reason for reason in verdict.reasons if "label:unacceptable" in reason]
    assert reason.startswith("recall 0.0000 on label:unacceptable (labeled unacceptable) is 0.7000 below")
    assert "more than retraining.slice_margin = 0.1 and more than chance (120 rows, 95 % interval" in reason


def test_undecided_slices_and_an_undecided_whole_refuse_nothing() -> None:
    labels = np.arange(40) % 2
    wrong = np.where(np.arange(40) < 6, 1 - labels, labels)
    one, other = (scored("SST-2", labels, saying(said)) for said in (wrong, np.roll(wrong, 2)))
    verdict = held(one, other)
    assert verdict.outcome == "undecided" and verdict.passed
    assert {part.outcome for part in verdict.slices.values()} == {"undecided"}
    beaten = held(one, scored("SST-2", labels, saying(labels)))
    assert beaten.outcome == "worse" and not beaten.passed  # six rows of forty, all to one side: p 0.03


def test_without_a_champion_costs_alone_can_refuse() -> None:
    labels = np.arange(40) % 2
    over = [dataclasses.replace(FREE[0], champion=None, budget=2.0, reason="latency 3.0 ms is more than 2"), FREE[1]]
    verdict = held(scored("SST-2", labels, saying(labels)), None, over)
    assert (verdict.outcome, verdict.passed, verdict.reasons) == ("first", False, ["latency 3.0 ms is more than 2"])
    assert held(scored("SST-2", labels, saying(labels)), None).passed


def test_the_rows_that_only_one_has_right() -> None:
    labels = np.array([0, 0, 1, 1, 1])
    model = scored("SST-2", labels, np.array([[0, 1], [0, 3], [0, 2], [2, 0], [3, 0]]))  # right on the third only
    champion = scored("SST-2", labels, saying(np.array([0, 0, 0, 1, 0])))  # wrong on the third and the last
    found = rows_lost(model, champion).rows
    assert [(row["row"], row["label"], row["prediction"]) for row in found] == [
        (1, "negative", "positive"), (3, "positive", "negative"), (0, "negative", "positive"),
    ]  # fmt: skip
    assert found[0]["confidence"] == pytest.approx(1 / (1 + np.exp(-3)))
    first = rows_lost(model, champion, shown=1)
    assert first.count == 3 and [row["row"] for row in first.rows] == [1]
    assert [row["row"] for row in rows_lost(champion, model).rows] == [2]


def test_scores_that_are_further_off() -> None:
    labels = np.array([1.0, 2.0, 3.0])
    model = scored("STS-B", labels, np.array([[1.5], [4.0], [3.0]]))
    champion = scored("STS-B", labels, np.array([[1.0], [2.5], [1.0]]))
    found = [(row["row"], row["prediction"], row["other"]) for row in rows_lost(model, champion).rows]
    assert found == [(1, 4.0, 2.5), (0, 1.5, 1.0)]
    assert [row["row"] for row in rows_lost(champion, model).rows] == [2]


def test_the_page_shows_both_models_and_escapes_texts() -> None:
    labels = np.arange(300) % 2
    champion = scored("SST-2", labels, saying(labels), "<script>alert('1 & 2')</script>")
    model = dataclasses.replace(champion, logits=saying(np.where(np.arange(300) < 30, 1 - labels, labels)))
    verdict = held(model, champion)
    html = render(model.task, verdict, disagreements(model, champion))
    assert "<script" not in html
    assert "25 of 30 rows:" in html
    assert html.count("&lt;script&gt;alert(&#39;1 &amp; 2&#39;)&lt;/script&gt;") == 25
    assert all(
        text in html for text in ("0.9000", "1.0000", "-0.1000", "version 7", "label:negative (labeled negative)")
    )
    assert "The new model is worse: it loses more than 0.02 of accuracy" in html
    assert str(escape(verdict.reasons[0])) in html
    assert "0 rows are right only with the new model, and\n  30 only with the champion." in html
    assert "src=" not in html and "href=" not in html


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (slice(0), "The new model is not worse: its loss of accuracy is at most 0.02"),
        (slice(4), "Undecided: 300 rows are too few to show"),
    ],
)
def test_the_verdict_in_words(wrong: slice, words: str) -> None:
    labels = np.arange(300) % 2
    predicted = labels.copy()
    predicted[wrong] = 1 - predicted[wrong]
    model, champion = (scored("SST-2", labels, saying(said)) for said in (predicted, labels))
    assert held(model, champion).words.startswith(words)


def test_a_page_of_undefined_scores() -> None:
    labels = np.linspace(0, 5, 30)
    flat = scored("STS-B", labels, np.full((30, 1), 2.5))
    verdict = held(flat, scored("STS-B", labels, labels[:, None]))
    assert verdict.outcome == "undecided" and verdict.passed
    assert "undefined" in render(flat.task, verdict, disagreements(flat, flat))


def test_a_model_that_has_given_up_a_label_is_refused_by_its_slice() -> None:
    task = dataclasses.replace(TASKS["multi-label"], labels=("often", "rarely"), label_names=("often", "rarely"))
    labels = (np.random.default_rng(0).random((400, 2)) < (0.9, 0.15)).astype(int)
    sentences = [(f"words {row}",) for row in range(400)]
    right = np.where(labels == 1, 3.0, -3.0)
    blind = right.copy()
    blind[:, 1] = -3.0 - np.arange(400) / 400  # knows nothing of the second label
    champion, model = (ScoredSplit(task, np.arange(400), labels, logits, sentences).cross_fitted()
                       for logits in (right, blind))  # fmt: skip
    assert champion.metrics()["f1_micro"] == 1
    never = dataclasses.replace(model, thresholds=np.full((400, 2), 0.5))
    verdict = held(never, champion)
    assert verdict.slices["label:often"].outcome == "not worse"
    assert verdict.slices["label:rarely"].outcome == "worse" and not verdict.passed
    apart = disagreements(never, champion)
    lost, won = apart.values()
    row, *_ = lost.rows
    assert {row["label"], row["other"]} <= {"rarely", "often, rarely"} and won.rows == []
    html = render(task, verdict, apart)
    assert "Where the new model has more labels wrong" in html and "paired bootstrap" in html
