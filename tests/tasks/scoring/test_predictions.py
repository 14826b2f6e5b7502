from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from include.glue import TASKS
from tasks.scoring.predictions import answer_columns, distribution, write_csv


def test_the_distribution_of_predictions() -> None:
    classes = np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 0.5], [0.2, 0.1]])
    assert distribution(TASKS["SST-2"], classes) == {"shares": {"negative": 0.75, "positive": 0.25}}
    several = dataclasses.replace(TASKS["multi-label"], labels=("a", "b", "c"), label_names=("a", "b", "c"))
    labels = np.array([[1.0, -1.0, -2.0], [0.5, 2.0, -0.1]])
    assert distribution(several, labels) == {"shares": {"a": 1.0, "b": 0.5, "c": 0.0}}
    scores = np.array([[1.0], [2.0], [3.0], [4.0]])
    assert distribution(TASKS["STS-B"], scores) == {"predicted": {"mean": 2.5, "std": pytest.approx(1.118, abs=1e-4)}}


@pytest.mark.parametrize("logits", [np.zeros((0, 2)), np.array([[0.1, np.nan]])])
def test_what_predicts_nothing_has_no_distribution(logits: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    assert distribution(TASKS["SST-2"], logits) == {}


def test_columns_of_labels_that_differ_only_in_case_have_names_that_differ() -> None:
    """Spark and DuckDB refuse files with columns that differ only in case."""
    chances = np.array([[0.2, 0.5, 0.3]])
    columns = answer_columns("classification", ["Yes", "yes", "no"], np.array([1]), chances)
    assert columns["predicted_label"].to_pylist() == ["yes"]
    names = ["probability:Yes (0)", "probability:yes (1)", "probability:no"]
    assert [name for name in columns if ":" in name] == names and columns[names[1]] == [0.5]


FORMULAS = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "\uff1d1"]
PLAIN = ["a=b", "1-1", "'=1", "", " =1", "good\n=1", None]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_that_a_spreadsheet_takes_for_formulas_are_escaped_if_that_is_asked_for(
    kind: pa.DataType, tmp_path: Path
) -> None:
    texts = [*FORMULAS, *PLAIN]
    table = pa.table(
        {"=id": pa.array(texts, kind), "n": [-1.5] * len(texts), "prediction": [[text or "x"] for text in texts]}
    )
    escaped = [f"'{text}" for text in FORMULAS] + [text or "" for text in PLAIN]
    for escape, name, expected in ((False, "=id", [text or "" for text in texts]), (True, "'=id", escaped)):
        write_csv(table, tmp_path / "a.csv", "|", escape)
        with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert [row[name] for row in rows] == expected and {row["n"] for row in rows} == {"-1.5"}
        assert [row["prediction"] or "x" for row in rows][: len(FORMULAS)] == expected[: len(FORMULAS)]
