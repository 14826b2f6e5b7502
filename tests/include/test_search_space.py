from __future__ import annotations

import pytest

from include.experiment import Experiment
from include.fields.search import Range
from include.named_experiments import load
from include.search_space import USUAL, default_of, space_of
from include.stages import BadInput


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("{training.epoch: [1]}", "there is no field 'training.epoch': write section.field"),
        ("{training.learning_rate: {low: 0.05, high: 1}}", "training.learning_rate = 1.0: input should be less than"),
        ("{training.batch_size: [1.5]}", "training.batch_size = 1.5: input should be a valid integer"),
        ("{training.batch_size: {low: 8, high: 64, step: 0.5}}", "is a whole number, but step is 0.5"),
        ("{training.epochs: {low: 3, high: 1}}", "training.epochs: low 3 must be less than high 1"),
        ("{training.epochs: {low: a, high: 1}}", "training.epochs.low: input should be a valid number"),
        ("{training.epochs: {low: 0, high: 1, log: true}}", "low 0 has no logarithm"),
        ("{training.epochs: {low: 1, high: 2, log: true, step: 1}}", "log and step exclude each other"),
        ("{training.epochs: 3}", "3 is not what can be tried: write a list of values"),
        ("{model.dropout: [0.1, x]}", "model.dropout = 'x': input should be a valid number"),
        ("{training.fused_layers: {low: 0, high: 1}}", "training.fused_layers is not a number, so it has no bounds"),
        ("{gate.accuracy: [0.5]}", "no trial reads gate.accuracy, so that all values of it are equally good: remove"),
        ("{runtime.download: [true]}", "no trial reads runtime.download"),
        ("{training.ranks: [1, 2]}", "no trial reads training.ranks"),
        ("{training.seed: [1, 2]}", "training.seed is no setting: it only decides which chance a trial has"),
        ("{preprocessing.resplit: [true]}", "it decides which rows the trials are compared on: remove it"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_a_remedy(space: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        load("movies", [f"search.space={space}"])
    assert message in str(error.value)


def test_values_have_the_types_of_their_fields() -> None:
    text = "{training.learning_rate: {low: 1e-5, high: 1e-3, log: true}, training.batch_size: [8, 16], "
    text += "training.epochs: [1], preprocessing.clean: [[], [html]], training.fused_layers: [true]}"
    space = space_of(load("movies", [f"search.space={text}"]))
    assert space == {
        "training.learning_rate": Range(low=1e-5, high=1e-3, log=True),
        "training.batch_size": (8, 16),
        "training.epochs": (1.0,),
        "preprocessing.clean": ([], ["html"]),
        "training.fused_layers": (True,),
    }


def test_the_usual_space_holds_the_default_and_what_has_a_meaning() -> None:
    assert space_of(Experiment()) == USUAL
    assert default_of(Experiment(), USUAL) == {
        "training.learning_rate": 5e-5, "training.epochs": 2, "training.batch_size": 32, "training.warmup": 0.06,
        "training.layer_decay": 1,
    }  # fmt: skip
    assert default_of(load("movies", ["training.warmup=0.05"]), USUAL) is None  # not one of the steps
    assert default_of(load("movies", ["training.batch_size=20"]), USUAL) is None
    assert "training.layer_decay" not in space_of(load("movies", ["model.kind=textcnn"]))
    assert "training.batch_size" not in space_of(load("movies", ["batching.kind=tokens"]))


@pytest.mark.parametrize(("text", "minutes"), [("45s", 0.75), ("30m", 30), ("1.5h", 90), ("7", 7)])
def test_a_budget_has_a_unit(text: str, minutes: float) -> None:
    assert load("movies", [f"search.minutes={text}"]).search.minutes == minutes
    with pytest.raises(BadInput, match=r"search\.minutes"):
        load("movies", ["search.minutes=30 days"])
