"""The comparison of runs: who may see it, what differs, paired tests, and the rows that only one model has right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from include.named_experiments import load
from include.paired import mcnemar, of_scores
from include.runs import Run
from tests.airflow_home import login
from tests.plugins.web.panel.conftest import Ask
from tests.plugins.web.panel.runs import HOSTILE, commit, lines, make_run

ROUTES = ("compare", "compared-rows")
TEXTS = ("a fine film", HOSTILE, "dull", "not dull", "so so")
LABELS = ("positive", "negative", "negative", "positive", "positive")


def evaluate(
    home: Path, name: str, right: str, seconds: float = 9.0, labels: tuple[str, ...] = LABELS, **overrides: Any
) -> str:
    """Let a run train for some seconds and answer five dev rows, right where `right` has a 1, and return its name."""
    run = Run(home / "runs" / name)
    experiment = load("movies", [f"{field.replace('__', '.')}={value}" for field, value in overrides.items()])
    trained = {"metric": "accuracy", "seconds": seconds, "rows_per_second": 45.0, "steps": 7}
    commit(home, run, experiment, "train", trained, {})
    flipped = {"positive": "negative", "negative": "positive"}
    answers = [(label, label if one == "1" else flipped[label]) for label, one in zip(labels, right, strict=True)]
    found = [
        {"row": number, "text": text, "label": label, "prediction": predicted, "correct": label == predicted}
        for number, (text, (label, predicted)) in enumerate(zip(TEXTS, answers, strict=True))
    ]
    figures = {"metrics": {"accuracy": right.count("1") / 5}, "interval": [0.1, 0.9]}
    commit(
        home, run, experiment, "evaluate", figures, {"metrics.json": json.dumps(figures), "rows.jsonl": lines(*found)}
    )
    return name


def score(home: Path, name: str, scores: tuple[float, ...]) -> str:
    """Let a run predict scores for four dev rows, and return its name."""
    labels = (0.0, 1.0, 3.0, 5.0)
    found = [
        {"row": number, "text": "a", "text2": "b", "label": label, "prediction": one, "error": one - label}
        for number, (label, one) in enumerate(zip(labels, scores, strict=True))
    ]
    commit(home, Run(home / "runs" / name), load("stsb"), "evaluate", {}, {"rows.jsonl": lines(*found)})
    return name


def test_every_run_is_one_that_the_user_may_read(ask: Ask, home: Path, only_retrain: None) -> None:
    own = [make_run(home, "retrain", f"own-{number}") for number in range(2)]
    other, nobodys = make_run(home, "finetune", "other"), make_run(home, "", "by-hand")
    for route in ROUTES:
        ask(route, run=own)
        for hidden in (other, nobodys, "nothing", "../runs"):
            refused = ask(route, status=404, run=[*own, hidden])
            assert refused == {"detail": "There is no such run, or you may not read its Dag."}


def test_without_a_right_or_a_login_there_is_nothing(ask: Ask, home: Path) -> None:
    runs = [evaluate(home, name, "11111") for name in ("one", "other")]
    for route in ROUTES:
        ask(route, login(None), 404, run=runs)
        assert "one" not in json.dumps(ask(route, {}, 401, run=runs))


@pytest.mark.parametrize("count", [0, 1, 7])
def test_two_to_six_runs_can_be_compared(ask: Ask, home: Path, count: int) -> None:
    runs = [evaluate(home, f"run-{number}", "11111") for number in range(count)]
    for route in ROUTES:
        answer = ask(route, status=400, run=[*runs, *runs])
        assert answer["detail"] == f"2 to 6 different runs can be compared, and this address names {count}."


def test_only_fields_that_differ_are_shown_and_defaults_are_filled_in(ask: Ask, home: Path) -> None:
    one = evaluate(home, "one", "11111", training__epochs=7)
    other = evaluate(home, "other", "11111", training__seed=9)
    (home / "runs/new").mkdir()
    answer = ask("compare", run=[one, other, "new"])
    assert answer["fields"] == [
        {"key": "training.epochs", "values": [7, load("movies").training.epochs, None]},
        {"key": "training.seed", "values": [load("movies").training.seed, 9, None]},
    ]
    assert ask("compare", run=[other, evaluate(home, "same", "11111", training__seed=9)])["fields"] == []


def test_results_stand_side_by_side_with_the_best_marked(ask: Ask, home: Path) -> None:
    made = (("worse", "10000", 5.0), ("better", "11100", 9.0), ("equal", "01110", 9.5))
    runs = [evaluate(home, *each) for each in made]
    answer = ask("compare", run=runs)
    found = {line["key"]: (line["values"], line["best"]) for line in answer["results"]}
    assert found["metrics.accuracy"] == ([0.2, 0.6, 0.6], [1, 2])
    assert found["train_seconds"] == ([5.0, 9.0, 9.5], [0])
    assert (found["rows_per_second"][1], found["steps"][1]) == ([], [])  # all are equal; more steps are not better
    first = answer["runs"][0]
    assert (first["run"], first["score"], first["interval"]) == ("worse", 0.2, [0.1, 0.9])


def test_models_are_tested_pair_by_pair_on_the_rows_that_only_one_has_right(ask: Ask, home: Path) -> None:
    runs = [evaluate(home, "a", "11100"), evaluate(home, "b", "10011"), evaluate(home, "c", "10000")]
    answer = ask("compare", run=runs)
    assert (answer["together"], answer["rows"], len(answer["pairs"])) == ([0, 1, 2], 5, 3)
    first = answer["pairs"][1]
    assert (first["one"], first["other"], first["only_one"], first["only_other"]) == (0, 2, 2, 0)
    assert (first["value"], first["p"]) == (pytest.approx(0.4), mcnemar(2, 0))
    found = ask("compared-rows", run=runs)
    assert [row["row"] for row in found["rows"]] == [1, 2, 3, 4] and found["counts"] == [2, 2, 0]
    assert (found["rows"][0]["texts"], found["rows"][0]["label"]) == ([HOSTILE], "negative")
    assert [one["wrong"] for one in found["rows"][0]["answers"]] == [False, True, True]
    assert [row["row"] for row in ask("compared-rows", run=runs, only="b")["rows"]] == [3, 4]
    assert ask("compared-rows", run=runs, only=HOSTILE)["total"] == 0
    assert ask("compared-rows", run=runs, page=2)["rows"] == []


def test_runs_that_share_an_artifact_do_not_differ(ask: Ask, home: Path) -> None:
    one = evaluate(home, "one", "11100")
    (home / "runs/again").mkdir()
    (home / "runs/again/run.json").write_text((home / "runs" / one / "run.json").read_text())
    (pair,) = ask("compare", run=[one, "again"])["pairs"]
    assert (pair["only_one"], pair["only_other"], pair["p"]) == (0, 0, 1)
    assert ask("compared-rows", run=[one, "again"])["total"] == 0


def test_other_dev_rows_are_not_compared(ask: Ask, home: Path) -> None:
    one, other = evaluate(home, "one", "11111"), evaluate(home, "other", "11100", labels=tuple(reversed(LABELS)))
    third, (none) = evaluate(home, "third", "00111"), "none"
    (home / "runs" / none).mkdir()
    answer = ask("compare", run=[one, other])
    assert (answer["together"], answer["pairs"]) == ([], [])
    assert all(line["best"] == [] for line in answer["results"])
    assert ask("compared-rows", run=[one, other])["rows"] == []
    answer = ask("compare", run=[other, one, none, third])
    assert (answer["together"], [run["rows"] for run in answer["runs"]]) == ([1, 3], [5, 5, 0, 5])
    assert ask("compared-rows", run=[other, one, none, third])["counts"] == [2, 0]


def test_scores_are_compared_by_their_correlation(ask: Ask, home: Path) -> None:
    near, far = (0.1, 1.0, 2.8, 4.5), (2.0, 0.0, 5.0, 4.6)
    runs = [score(home, "near", near), score(home, "far", far)]
    answer = ask("compare", run=runs)
    expected = of_scores((0.0, 1.0, 3.0, 5.0), near, far)
    assert expected is not None and answer["scores"]
    (pair,) = answer["pairs"]
    assert (pair["value"], pair["p"], pair["only_one"]) == (
        pytest.approx(expected.value),
        pytest.approx(expected.p),
        None,
    )
    found = ask("compared-rows", run=runs)
    assert [row["row"] for row in found["rows"]] == [2, 0, 1, 3] and found["counts"] == [
        3,
        1,
    ]  # the widest spread first
    assert [row["row"] for row in ask("compared-rows", run=runs, only="far")["rows"]] == [3]
    words = evaluate(home, "words", "11111")
    assert ask("compare", run=[*runs, words])["together"] == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "[]\n", '{"row": [], "text": "", "label": "", "prediction": ""}\n',
        '{"row": 1e999, "text": "", "label": "", "prediction": ""}\n',
        '{"row": 0, "text": "", "label": "x", "prediction": "y", "error": 1}\n',
        '{"row": 0, "text": "", "label": 1, "prediction": 1e999, "error": 1}\n',
    ],
)  # fmt: skip
def test_damaged_rows_and_figures_hide_nothing(ask: Ask, home: Path, text: str) -> None:
    good = evaluate(home, "good", "11111")
    figures = {"metrics.json": '{"interval": [{}, "x"]}', "rows.jsonl": text}
    for name in ("bad", "worse"):
        result = {"metrics": {"accuracy": 10**400, HOSTILE: 1}}
        commit(home, Run(home / "runs" / name), load("movies"), "evaluate", result, figures)
    answer = ask("compare", run=[good, "bad", "worse"])
    assert [run["run"] for run in answer["runs"]] == [good, "bad", "worse"]
    assert answer["runs"][1]["interval"] is None
    assert f"metrics.{HOSTILE}" in [line["key"] for line in answer["results"]]
    ask("compared-rows", run=[good, "bad", "worse"])
