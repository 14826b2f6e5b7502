"""rows.jsonl and metrics.json, which a viewer shows together: what one counts, the other lists."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.scoring.scored import ScoredSplit
from tasks.stages.pipeline.evaluate.rows import write_json_lines
from tasks.stages.pipeline.evaluate.summary import summarize
from tests.tasks.stages.pipeline.evaluate.made_up import made_up, of_classes, of_labels


def written(dev: ScoredSplit, file: Path) -> list[dict[str, Any]]:
    write_json_lines(dev, file)
    return [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]


def check_slices(rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    counted = Counter(name for row in rows for name in row["slices"])
    assert counted == {name: part["rows"] for name, part in summary["slices"].items()}


@pytest.mark.parametrize("name", ["SST-2", "MNLI"])
def test_the_rows_of_a_classification(name: str, tmp_path: Path) -> None:
    dev = made_up(name)
    rows, summary = written(dev, tmp_path / "rows.jsonl"), summarize(dev)
    texts = [tuple(row[key] for key in ("text", "text2") if key in row) for row in rows]
    assert texts == dev.sentences and [row["row"] for row in rows] == dev.rows.tolist()
    names = summary["label_names"]
    assert names == list(dev.task.label_names) and summary["kind"] == "classification"
    cells = Counter((row["label"], row["prediction"]) for row in rows)
    assert [[cells[label, prediction] for prediction in names] for label in names] == summary["confusion"]
    assert np.mean([row["correct"] for row in rows]) == pytest.approx(summary["metrics"]["accuracy"])
    for row in rows:
        assert row["prediction"] == names[np.argmax(row["probabilities"])]
        assert row["confidence"] == max(row["probabilities"])
        assert sum(row["probabilities"]) == pytest.approx(1, abs=1e-5)
    check_slices(rows, summary)
    by_row = {row["row"]: row for row in rows}
    worst = [by_row[row] for row in summary["mistakes"]]
    assert [row["confidence"] for row in worst] == sorted((row["confidence"] for row in worst), reverse=True)
    assert worst and not any(row["correct"] for row in worst)


def test_the_rows_of_a_regression(stsb: ScoredSplit, tmp_path: Path) -> None:
    rows, summary = written(stsb, tmp_path / "rows.jsonl"), summarize(stsb)
    assert set(rows[0]) == {"row", "text", "text2", "label", "prediction", "error", "slices"}
    assert [row["label"] for row in rows] == stsb.labels.tolist()
    assert [row["error"] for row in rows] == [row["prediction"] - row["label"] for row in rows]
    assert np.mean([abs(row["error"]) for row in rows]) == pytest.approx(summary["metrics"]["mae"])
    assert summary["mistakes"][0] == max(rows, key=lambda row: abs(row["error"]))["row"]
    assert (summary["kind"], summary["label_names"]) == ("regression", [])
    check_slices(rows, summary)


def test_the_rows_of_several_labels(tmp_path: Path) -> None:
    dev = of_labels(("acting", "plot", "music"), 80)
    rows, summary = written(dev, tmp_path / "rows.jsonl"), summarize(dev, thresholds=(0.5, 0.5, 0.5))
    names = np.array(dev.task.label_names)
    assert [row["label"] for row in rows] == [names[labels == 1].tolist() for labels in dev.labels]
    assert [row["correct"] for row in rows] == [row["label"] == row["prediction"] for row in rows]
    assert np.mean([row["correct"] for row in rows]) == pytest.approx(summary["metrics"]["subset_accuracy"])
    assert [row["probabilities"] for row in rows] == pytest.approx(dev.probabilities, abs=1e-6)
    check_slices(rows, summary)


def test_a_text_with_line_ends_of_any_kind_stays_on_its_line(tmp_path: Path) -> None:
    dev = of_classes(["好评", "a\nb"], 3)
    texts = [("one\r\ntwo",), ("three\u2028four\x85five\x0csix",), ("\x00 😀 </script>",)]
    rows = written(dataclasses.replace(dev, sentences=texts), tmp_path / "rows.jsonl")
    assert [(row["text"],) for row in rows] == texts
