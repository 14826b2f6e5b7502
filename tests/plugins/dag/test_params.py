"""The trigger form: every field is there, named experiments pass through it whole, wrong values are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Param
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import ParamValidationError

from include.experiment import Experiment
from include.named_experiments import load, names
from include.stages import BadInput
from spark_bert.dag.params import _COMMON, explain, filled, form, resolve


def _submitted(conf: dict[str, Any]) -> dict[str, Any]:
    """What a run gets when the form is sent with these fields filled in."""
    params = ParamsDict(form())
    params.update(json.loads(json.dumps(conf)))
    return params.validate()


def _schema(key: str) -> dict[str, Any]:
    param = form()[key]
    assert isinstance(param, Param)
    return param.schema


def test_every_field_that_the_pipeline_reads_has_a_param_with_section_title_and_help() -> None:
    others = {"study", "dataset", "retraining", "retention", "publication", "scoring", "serving", "search", "streaming"}
    sections = Experiment().model_dump(exclude=others)
    fields = {f"{section}.{field}" for section, part in sections.items() for field in part}
    assert set(form()) == fields | {"experiment"}
    for key, param in form().items():
        assert param.schema["title"] and param.schema["section"], key
        assert len(param.schema["description_md"]) > 20, key


def test_the_form_shows_what_people_change_and_has_all_else_at_its_end() -> None:
    params = form(more=Experiment.model_fields)
    sections = [param.schema["section"] for param in params.values()]
    assert sections[sections.index("Advanced") :] == ["Advanced"] * sections.count("Advanced")
    assert sections.count("Advanced") > 80 and len(set(sections)) > 12
    assert all(
        section in ("Advanced", key.partition(".")[0].capitalize())
        for key, section in zip(params, sections, strict=True)
    )
    for key, section in (("training.epochs", "Training"), ("gate.f1", "Gate"), ("training.clip_norm", "Advanced")):
        assert params[key].schema["section"] == section
    shown = set(_COMMON) - {key for name in params for key in (name, name.partition(".")[0])}
    assert not shown, "the form has no such field"


def test_a_dag_may_have_more_sections_and_start_from_another_experiment() -> None:
    params = form("sst2", more=("retraining",))
    assert set(params) - set(form()) == {f"retraining.{field}" for field in Experiment().retraining.model_dump()}
    assert params["experiment"].schema["description_md"].endswith("Default: **sst2**.")
    assert ParamsDict(params).validate()["experiment"] == "sst2"


@pytest.mark.parametrize("name", names())
def test_an_untouched_form_is_the_named_experiment(name: str) -> None:
    assert resolve(_submitted({"experiment": name})) == load(name)


@pytest.mark.parametrize("name", names())
def test_every_value_of_an_experiment_passes_its_own_param(name: str) -> None:
    whole = load(name).model_dump(mode="json")
    conf = {f"{section}.{field}": value for section, part in whole.items() for field, value in part.items()}
    assert resolve(_submitted({"experiment": "movies", **conf})) == load(name)


def test_overrides_lie_on_top() -> None:
    conf = {
        "experiment": "cola",
        "training.epochs": 0.5,
        "preprocessing.clean": ["html", "whitespace"],
        "gate.slices": {"length:long": 0.2},
        "gate.matthews": 0.3,
        "runtime.download": True,
    }
    experiment = resolve(_submitted(conf))
    assert experiment.training == load("cola").training.model_copy(update={"epochs": 0.5})
    assert experiment.model == load("cola").model
    assert experiment.preprocessing.clean == ("html", "whitespace")
    assert experiment.gate.slices == {"length:long": 0.2} and experiment.thresholds == {"matthews": 0.3}
    assert experiment.runtime.download


def test_the_deployments_cluster_is_for_runs_that_name_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_SPARK_MASTER", "spark://spark:7077")
    assert resolve(_submitted({"experiment": "movies"})).runtime.spark_master == "spark://spark:7077"
    local = _submitted({"experiment": "movies", "runtime.spark_master": "local[2]"})
    assert resolve(local).runtime.spark_master == "local[2]"


def test_a_field_may_take_a_word_or_a_number() -> None:
    assert _schema("training.ranks")["type"] == ["string", "integer", "null"]
    for ranks, expected in (("auto", "auto"), (2, 2), ("2", 2), (None, "auto")):
        assert resolve(_submitted({"training.ranks": ranks})).training.ranks == expected
    assert filled({"training.ranks": "2", "data.name": "2"}) == {"training.ranks": 2, "data.name": "2"}
    with pytest.raises(BadInput, match=r"training\.ranks"):
        resolve(_submitted({"training.ranks": "0"}))


@pytest.mark.parametrize("key", ["gate.beat_baseline", "training.fused_layers", "training.compiled_layers"])
def test_a_switch_is_a_choice_of_the_experiments_value_yes_and_no(key: str) -> None:
    """Airflow's form shows a boolean field as a switch that is off, also where the default is true."""
    assert _schema(key)["type"] == ["string", "null"] and _schema(key)["enum"] == [None, "yes", "no"]
    section, name = key.split(".")
    default = getattr(getattr(load("movies"), section), name)
    for sent, expected in ((None, default), ("yes", True), ("no", False), (True, True), (False, False)):
        assert getattr(getattr(resolve(_submitted({key: sent})), section), name) is expected
    assert filled({key: "no", "data.name": "no"}) == filled({key: False, "data.name": "no"})


def test_what_an_empty_field_means_is_shown_for_every_choice() -> None:
    choices = [param.schema for key, param in form().items() if "enum" in param.schema and key != "experiment"]
    assert len(choices) > 20 and all(schema["values_display"] == {"null": "as in the experiment"} for schema in choices)


def test_the_form_changes_no_number_in_silence() -> None:
    """It reads minimum and maximum beside the type, and would make the largest number of one that is too large."""
    assert not [key for key, param in form().items() if {"minimum", "maximum"} & set(param.schema)]


NAMED = """
data: {task: SST-2, source: files, path: /data/reviews, train: first.csv}
pretraining: {text: /data/unlabeled.txt}
dataset: {name: reviews, drop: /data/drop}
"""
TEXTS = ("data.path", "data.train", "pretraining.text", "dataset.name", "dataset.drop")


@pytest.fixture
def reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """An experiment named reviews, which says something in many text fields."""
    (tmp_path / "reviews.yaml").write_text(NAMED)
    monkeypatch.setattr("include.named_experiments.FOLDER", tmp_path)
    return load("reviews")


def test_empty_text_keeps_what_the_named_experiment_says(reviews: Experiment) -> None:
    params = ParamsDict(form("reviews", more=("dataset",)))
    params.update(dict.fromkeys(TEXTS, ""))
    assert resolve(params.validate()) == reviews


def test_none_takes_away_text_that_an_experiment_may_go_without(reviews: Experiment) -> None:
    asked = {"experiment": "reviews", "pretraining.text": "none", "dataset.name": "none", "batching.kind": "length"}
    found = resolve(asked)
    assert (found.pretraining.text, found.dataset.name, found.dataset.drop) == ("", "", "/data/drop")
    assert resolve({"experiment": "reviews", "loss.class_weights": "none", "data.train": "none"}).data.train == "none"


def test_the_form_says_where_its_experiment_differs_from_the_defaults() -> None:
    assert form("sst2")["training.learning_rate"].schema["description_md"].endswith("**5e-05**. In sst2: **6e-05**.")
    assert form()["training.learning_rate"].schema["description_md"].endswith("Default: **5e-05**.")


LEARNING_TEXTS = {"model.lexicon", "pretraining.text", "model.teacher", "distillation.text"}
DATA_TEXTS = {"data.path", "data.table", "data.version", "data.delimiter"}


def test_the_form_says_which_text_can_be_taken_away() -> None:
    params = form(more=("dataset",))
    told = {key for key, param in params.items() if "**none** to remove the text" in param.schema["description_md"]}
    assert told == {*DATA_TEXTS, *LEARNING_TEXTS, "dataset.name", "dataset.drop"}


def test_rules_reach_the_form() -> None:
    assert _schema("training.epochs")["allOf"] == [{"exclusiveMinimum": 0, "maximum": 100}]
    assert _schema("training.precision")["enum"] == ["auto", "fp32", "bf16", "fp16", None]
    assert _schema("gate.accuracy")["type"] == ["number", "null"]
    assert _schema("data.score_range")["items"] == {"type": "number"}
    assert _schema("preprocessing.clean")["examples"] == [
        "html",
        "stop-words",
        "punctuation",
        "lowercase",
        "whitespace",
    ]
    assert _schema("runtime.spark_master")["pattern"].startswith("^(local")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("experiment", "sst3"),
        ("experiment", None),
        ("experiment", "../../etc/passwd"),
        ("training.epochs", -1),
        ("training.epochs", "three"),
        ("training.learning_rate", 0),
        ("training.learning_rate", 1e9),
        ("training.ranks", 1.5),
        ("training.ranks", 0),
        ("training.ranks", 1025),
        ("training.ranks", "all"),
        ("training.precision", "fp8"),
        ("preprocessing.max_length", 0),
        ("preprocessing.max_length", 100000),
        ("preprocessing.clean", ["html", "stem"]),
        ("data.task", "SST-3"),
        ("data.score_range", [0]),
        ("data.columns", {"text": "review"}),
        ("data.labels", [1, 2]),
        ("gate.accuracy", 92.7),
        ("gate.slices", {"length:long": "high"}),
        ("model.name", ""),
        ("runtime.download", "maybe"),
        ("preprocessing.sample", 5),
        ("runtime.spark_master", "somewhere"),
    ],
)
def test_the_form_refuses_and_names_the_field(key: str, value: Any) -> None:
    with pytest.raises(ParamValidationError, match=f"Invalid input for param {key}: "):
        _submitted({key: value})


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"training.batch_size": 33, "training.ranks": 2}, "batch_size 33 is not a multiple of training.ranks 2"),
        ({"data.task": "SST-2"}, "write data.source: glue, hub, files, delta or iceberg"),
        ({"gate.pearson": 0.5}, r"gate\.pearson does not fit the classification task movie-reviews"),
        ({"training.epoch": 1}, r"unknown key training\.epoch, did you mean epochs\?"),
        ({"trainig.epochs": 1}, "unknown key trainig, did you mean training"),
        ({"epochs": 1}, "unknown key epochs"),
        ({"training": {"epochs": 1}}, "unknown key training"),
    ],
)
def test_what_the_form_cannot_see_the_run_refuses(conf: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        resolve(_submitted(conf))


def test_an_experiment_file_is_not_read_through_the_form() -> None:
    with pytest.raises(BadInput, match=r"unknown experiment '/etc/passwd\.yaml'"):
        resolve({"experiment": "/etc/passwd.yaml"})


def test_the_explanation_has_a_row_for_every_param() -> None:
    text = explain(form())
    for key in form():
        assert f"| `{key}` |" in text
