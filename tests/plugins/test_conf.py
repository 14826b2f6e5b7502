"""What make run sends to the Dag, and when it compiles Horovod first."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from airflow.sdk.definitions.param import ParamsDict

from include import named_experiments
from include.experiment import Experiment
from include.named_experiments import load
from include.stages import Transient
from scripts import run
from scripts.run import conf_of, experiment_of
from spark_bert.dag.params import form, resolve


def run_of(experiment: str, *overrides: str, data: Path | None = None, **columns: str) -> Experiment:
    """The experiment of the run that make run starts."""
    params = ParamsDict(form())
    names = dict.fromkeys(("text", "text2", "label")) | columns
    options = Namespace(experiment=experiment, set=list(overrides), data=data, **names)
    params.update(conf_of(options, experiment_of(options)))
    return resolve(params.validate())


@pytest.mark.parametrize("name", ["movies", "cola"])
def test_a_named_experiment_with_overrides(name: str) -> None:
    assert run_of(name, "training.epochs=7") == load(name, ["training.epochs=7"])


def test_values_have_the_types_of_the_form() -> None:
    asked = ["training.epochs=1e1 training.fused_layers=no model.name=1e3", "gate.slices={length:long: 0.8} data.path="]
    assert run_of("cola", *asked, "data.source=hub") == load("cola", [*asked, "data.source=hub"])


def test_data_is_the_folder_as_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_of("cola", data=Path("glue")).data.path == str(tmp_path / "glue")


def test_a_file_with_all_rows_needs_no_experiment(tmp_path: Path) -> None:
    file = tmp_path / "all rows.csv"
    file.touch()
    found = run_of("movies", "data.delimiter=;", data=file, text="the body", label="no").data
    assert (found.source, found.task, found.path) == ("files", "auto", str(file))
    assert found.columns == {"sentence": "the body", "label": "no"}
    assert found.delimiter == ";"
    (tmp_path / "table/_delta_log").mkdir(parents=True)
    assert run_of("movies", data=tmp_path / "table", text="a", label="b").data.source == "delta"
    files = run_of("movies", data=tmp_path / "all*.csv").data
    assert (files.source, files.path) == ("files", str(tmp_path / "all*.csv"))
    folder = run_of("movies", "data.task=regression", data=tmp_path, text="a", text2="b", label="score")
    assert (folder.data.task, folder.task.sentences) == ("regression", ("sentence", "sentence2"))
    assert folder.thresholds == {"pearson": 0}
    assert not folder.data.is_described


def test_columns_are_added_to_those_of_an_experiment(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("data: {task: classification, source: files, columns: {sentence: body, label: urgent}}\n")
    found = run_of(str(own), data=tmp_path, label="class").data
    assert (found.task, found.columns) == ("classification", {"sentence": "body", "label": "class"})


def test_a_file_starts_from_the_defaults_and_not_from_the_default_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_experiments, "FOLDER", tmp_path)
    (tmp_path / "movies.yaml").write_text("training: {epochs: 7}\n")
    file = tmp_path / "own.yaml"
    file.write_text("data: {path: data/own, source: files, columns: {sentence: text}}\nmodel: {dropout: 0.2}\n")
    assert run_of("movies").training.epochs == 7
    found = run_of(str(file), "gate.accuracy=0.7")
    assert found == load(str(file), ["gate.accuracy=0.7"])
    assert found.training == Experiment().training


@pytest.mark.parametrize(
    ("overrides", "compiled"),
    [
        ([], False),
        (["training.ranks=1"], False),
        (["training.ranks=2"], True),
        (["communication.strategy=parameter-server", "communication.compression=none", "training.ranks=1"], True),
    ],
)
def test_horovod_is_compiled_when_a_training_first_needs_it(
    overrides: list[str], compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(run, "run_logged", lambda command, log: commands.append(command))
    monkeypatch.setattr(run, "REPOSITORY", tmp_path)
    monkeypatch.setattr(run, "tasks_python", lambda: tmp_path / ".venv/tasks/bin/python")
    run.set_up_ranks(load("movies", overrides), tmp_path / "log.txt")
    assert commands == ([[str(tmp_path / "scripts/setup.sh")]] if compiled else [])
    (tmp_path / ".venv/tasks").mkdir(parents=True)
    (tmp_path / ".venv/tasks/.horovod").touch()
    run.set_up_ranks(load("movies", overrides), tmp_path / "log.txt")
    assert len(commands) == compiled, "it is installed now"


@pytest.mark.parametrize(
    ("variable", "value"), [("SPARK_BERT_RUNTIME", "docker"), ("SPARK_BERT_TASKS_PYTHON", "/x/py")]
)
def test_images_and_other_environments_bring_their_own_horovod(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "run_logged", lambda command, log: pytest.fail("they are not set up here"))
    monkeypatch.setattr(run, "REPOSITORY", tmp_path)
    monkeypatch.setenv("SPARK_BERT_TASKS_PYTHON", str(tmp_path / ".venv/tasks/bin/python"))
    monkeypatch.setenv(variable, value)
    run.set_up_ranks(load("movies", ["training.ranks=2"]), tmp_path / "log.txt")


def test_a_command_that_fails_tells_its_last_error(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with pytest.raises(Transient, match="no compiler"):
        run.run_logged(["sh", "-c", "echo at work; echo no compiler >&2; exit 1"], log)
    assert log.read_text() == "at work\nno compiler\n"
