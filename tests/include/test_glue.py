from __future__ import annotations

from typing import get_args

from include.glue import SPLITS, SUBMISSION_TASKS, TASKS
from include.sections import TaskName


def test_the_form_offers_every_row() -> None:
    assert set(get_args(TaskName)) == set(TASKS)


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
