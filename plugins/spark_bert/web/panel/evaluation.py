"""The evaluation of a run's model: its figures, and the rows of the dev split with their predictions."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, BinaryIO

from spark_bert.deployment.places import home
from spark_bert.web.panel.records import artifact_key, open_artifact, open_in_artifact, parse, read_json

PAGE = 50  # rows
_LARGEST = 1 << 28  # bytes of a file with rows
_CHARACTERS = 10_000  # of a text


def read_evaluation(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics, classes, confusion matrix, calibration and slices of a run; {} if it has none."""
    return read_json(lambda: open_artifact(record, "evaluate", "metrics.json"))


def select_rows(record: Mapping[str, Any], query: Mapping[str, str], wrong: bool, page: int) -> dict[str, Any]:
    """Return a page of the dev rows, the most confident predictions first, or the largest errors of a regression.

    Args:
        record: the record of the run.
        query: what the rows must have: "label", "prediction", "slice", and "q" for words of their texts. Empty ones are
            ignored.
        wrong: whether only mistakes are wanted.
        page: the page, from 1.
    """
    rows = dev_rows(str(home()), artifact_key(record, "evaluate"))
    words = frozenset(query.get("q", "").lower().split())
    found = [row for row in rows if (row["wrong"] or not wrong) and _fits(row, query) and _has(row, words)]
    start = (page - 1) * PAGE
    return {"rows": found[start : start + PAGE], "total": len(found), "page": page, "size": PAGE}


def _fits(row: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    return all(row[key] == query[key] for key in ("label", "prediction") if query.get(key)) and (
        not query.get("slice") or query["slice"] in row["slices"]
    )


def _has(row: Mapping[str, Any], words: Collection[str]) -> bool:
    if not words:
        return True
    text = " ".join(row["texts"]).lower()
    return all(word in text for word in words)


@lru_cache(maxsize=12)  # two comparisons of six runs
def dev_rows(root: str, key: str) -> Sequence[dict[str, Any]]:
    """Return all rows of an artifact of evaluate, as select_rows orders them. It never changes, so it is read once.

    Args:
        root: the home, because another one may have other rows under the same key.
        key: the key of the artifact; "" if the run made none, which has no rows.
    """
    with suppress(OSError, ArithmeticError, ValueError, KeyError, TypeError, csv.Error):
        rows = _from_json(key) or _from_csv(key)
        return sorted(rows, key=lambda row: -abs(row["confidence"] or row["error"] or 0))
    return ()


def _from_json(key: str) -> list[dict[str, Any]]:
    """Return the rows of rows.jsonl; [] if the artifact is older than that file."""
    with suppress(FileNotFoundError), _open(key, "rows.jsonl") as file:
        return [_row(parse(line)) for line in file]
    return []


@contextmanager
def _open(key: str, name: str) -> Iterator[BinaryIO]:
    with open_in_artifact("evaluate", key, name) as file:
        if os.fstat(file.fileno()).st_size > _LARGEST:
            raise ValueError(f"{name} is too large to be shown")
        yield file


def _row(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "row": int(line["row"]),
        "texts": [str(line[name])[:_CHARACTERS] for name in ("text", "text2") if name in line],
        "label": _name(line["label"]),
        "prediction": _name(line["prediction"]),
        "wrong": not line.get("correct", True),
        "confidence": line.get("confidence"),
        "error": line.get("error"),
        "slices": line.get("slices", []),
    }


def _name(label: Any) -> str:
    """Return a label, or the labels of a row that may have several, as one text."""
    return ", ".join(map(str, label)) if isinstance(label, list) else str(label)


def _from_csv(key: str) -> list[dict[str, Any]]:
    """Return the rows of predictions.csv, which says less."""
    with _open(key, "predictions.csv") as file:
        return [_old_row(line) for line in csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))]


def _old_row(line: Mapping[str, str]) -> dict[str, Any]:
    label, prediction = line["label"], line.get("predicted_label", line["prediction"])
    error = None if "predicted_label" in line else _difference(label, prediction)
    return {
        "row": int(line["row"]),
        "texts": [line[name][:_CHARACTERS] for name in ("sentence1", "sentence2") if line.get(name) is not None],
        "label": label,
        "prediction": prediction,
        "wrong": error is None and label != prediction,
        "confidence": float(line["probability"]) if line.get("probability") else None,
        "error": error,
        "slices": [],
    }


def _difference(label: str, prediction: str) -> float | None:
    """Return the error of a score; None if these are no scores but sets of labels."""
    with suppress(ValueError):
        return float(prediction) - float(label)
    return None
