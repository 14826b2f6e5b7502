"""What make run sends to the Dag."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from airflow.sdk.definitions.param import ParamsDict

from include.experiment import Experiment
from include.named import load
from scripts.run import conf_of
from spark_bert.params import form, resolve


def run_of(experiment: str, *overrides: str, data: Path | None = None) -> Experiment:
    """The experiment of the run that make run starts."""
    params = ParamsDict(form())
    params.update(conf_of(Namespace(experiment=experiment, set=list(overrides), data=data)))
    return resolve(params.validate())


@pytest.mark.parametrize("name", ["movies", "cola"])
def test_a_named_experiment_with_overrides(name: str, tmp_path: Path) -> None:
    assert run_of(name, "training.epochs=7") == load(name, ["training.epochs=7"])


def test_data_is_the_folder_as_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_of("cola", data=Path("glue")).data.path == str(tmp_path / "glue")


def test_a_file_starts_from_the_defaults_and_not_from_the_default_experiment(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("data: {path: data/own, source: files, columns: {sentence: text}}\nmodel: {dropout: 0.2}\n")
    assert load("movies").training != Experiment().training
    found = run_of(str(file), "gate.accuracy=0.7")
    assert found == load(str(file), ["gate.accuracy=0.7"])
    assert found.training == Experiment().training
