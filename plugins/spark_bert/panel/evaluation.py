"""The evaluation of a run's model: its figures, and the rows of the dev split with their predictions."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from include.artifacts import MANIFEST
from spark_bert.folders import open_file
from spark_bert.panel.records import artifact_key, open_artifact, read_json
from spark_bert.places import home

PAGE = 50  # rows


def read_evaluation(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics, classes, confusion matrix, calibration and slices of a run; {} if it has none."""
    return read_json(lambda: open_artifact(record, "evaluate", "metrics.json"))


def select_rows(record: Mapping[str, Any], query: Mapping[str, str], wrong: bool, page: int) -> dict[str, Any]:
    """Return a page of the dev rows, the most confident predictions first, or the largest errors of a regression.

    Args:
        record: the record of the run.
        query: what the rows must have: "label", "prediction", and "q" for words of their texts. Empty ones are ignored.
        wrong: whether only mistakes are wanted.
        page: the page, from 1.
    """
    words = query.get("q", "").lower().split()
    found = [
        row
        for row in _rows(str(home()), artifact_key(record, "evaluate"))
        if all(not query.get(key) or row[key] == query[key] for key in ("label", "prediction"))
        and (not wrong or row["wrong"])
        and all(word in " ".join(row["sentences"]).lower() for word in words)
    ]
    start = (page - 1) * PAGE
    return {"rows": found[start : start + PAGE], "total": len(found), "page": page, "size": PAGE}


@lru_cache(maxsize=8)
def _rows(root: str, key: str) -> Sequence[dict[str, Any]]:
    """Return all rows of an artifact of evaluate. It never changes, so it is read once."""
    with suppress(OSError, ValueError, csv.Error):
        open_file(home() / "artifacts", "evaluate", key, MANIFEST).close()
        with open_file(home() / "artifacts", "evaluate", key, "predictions.csv") as file:
            rows = [_row(line) for line in csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))]
        return sorted(rows, key=lambda row: -(row["confidence"] or row["error"] or 0))
    return ()


def _row(line: Mapping[str, str]) -> dict[str, Any]:
    """Return a row of predictions.csv with its texts together."""
    label, prediction = line.get("label") or "", line.get("predicted_label", line.get("prediction")) or ""
    error = None if "predicted_label" in line else _distance(label, prediction)
    return {
        "row": int(line["row"]),
        "sentences": [line[name] for name in ("sentence1", "sentence2") if line.get(name) is not None],
        "label": label,
        "prediction": prediction,
        "wrong": error is None and label != prediction,
        "confidence": float(line["probability"]) if line.get("probability") else None,
        "error": error,
    }


def _distance(label: str, prediction: str) -> float | None:
    """Return how far two scores are apart; None if they are sets of labels."""
    with suppress(ValueError):
        return abs(float(prediction) - float(label))
    return None
