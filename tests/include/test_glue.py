from __future__ import annotations

import dataclasses

import pytest

from include.experiment import Experiment
from include.fields.data import Data
from include.glue import SPLITS, SUBMISSION_TASKS, TASKS
from include.named_experiments import build
from include.stages import BadInput


def offered() -> list[str]:
    """The tasks in the drop-down list of the trigger form."""
    tasks: list[str] = Data.model_json_schema()["properties"]["task"]["enum"]
    return tasks


def test_the_form_offers_every_row() -> None:
    assert offered() == list(TASKS)


def test_a_new_row_is_all_that_a_new_task_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"data": {"task": "Irony", "source": "glue", "path": "glue"}, "gate": {"slices": {"label:ironic": 0.8}}}
    with pytest.raises(BadInput, match="there is no task 'Irony': write one of movie-reviews, SST-2"):
        build(values, "mine")
    monkeypatch.setitem(
        TASKS, "Irony", dataclasses.replace(TASKS["SST-2"], name="Irony", label_names=("literal", "ironic"), gate=0.7)
    )
    experiment = build(values, "mine")
    assert experiment.task == TASKS["Irony"]
    assert build({"data": values["data"]}, "mine").thresholds == {"accuracy": 0.7}
    assert Experiment.model_validate_json(experiment.model_dump_json()) == experiment
    assert "Irony" in offered()


def test_a_submission_has_the_eleven_published_files() -> None:
    files = {TASKS[name].submission for name in SUBMISSION_TASKS}
    assert files == {
        "AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "MRPC.tsv", "QNLI.tsv",
        "QQP.tsv", "RTE.tsv", "SST-2.tsv", "STS-B.tsv", "WNLI.tsv",
    }  # fmt: skip


def test_rows_are_complete() -> None:
    for name, task in TASKS.items():
        assert task.name == name
        assert len(task.labels) == len(task.label_names)
        if not task.splits:
            continue  # one's own files bring columns and labels
        assert set(task.splits) == set(SPLITS)
        for split in SPLITS:
            columns = task.splits[split].columns
            assert set(task.sentences) <= set(columns)
            assert (task.label in columns) == (split != "test")
        assert (task.kind == "regression") == (task.score_range is not None) == (not task.labels)


def test_published_layouts() -> None:
    assert TASKS["CoLA"].splits["train"].columns == ("source", "label", "star", "sentence")
    assert not TASKS["CoLA"].splits["dev"].header and TASKS["CoLA"].splits["test"].header
    assert TASKS["MRPC"].splits["test"].columns == ("index", "#1 ID", "#2 ID", "#1 String", "#2 String")
    assert TASKS["MNLI-mm"].splits["dev"].file == "MNLI/dev_mismatched.tsv"
    assert TASKS["STS-B"].splits["train"].columns[-3:] == ("sentence1", "sentence2", "score")
