"""The evaluation of a run's model: its figures, and the rows of the dev split with their predictions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any

from fastapi import Query

from spark_bert.deployment.places import home
from spark_bert.web.panel.addresses import Chosen, Page, Text
from spark_bert.web.panel.records import is_number, open_artifact, parse, read_artifact, read_record

PAGE = 50  # rows
_LARGEST = 1 << 28  # bytes of a file with rows
_CHARACTERS = 10_000  # of a text


def read_evaluation(row: Chosen) -> dict[str, Any]:
    """Return the metrics, classes, confusion matrix, calibration and slices of a run; {} if it has none."""
    return read_artifact("evaluate", read_record(row.run).key("evaluate"), "metrics.json")


def select_rows(
    row: Chosen,
    q: Text = "",  # words of the row's texts
    label: Text = "",
    prediction: Text = "",
    slice_: Annotated[str, Query(alias="slice", max_length=200)] = "",
    wrong: bool = False,
    page: Page = 1,
) -> dict[str, Any]:
    """Return a page of the dev rows, the most confident predictions first, or the largest errors of a regression."""
    words = q.lower().split()
    found = [
        row
        for row in dev_rows(str(home()), read_record(row.run).key("evaluate"))
        if (row["wrong"] or not wrong)
        and label in ("", row["label"])
        and prediction in ("", row["prediction"])
        and (not slice_ or slice_ in row["slices"])
        and all(word in " ".join(row["texts"]).lower() for word in words)
    ]
    return page_of(found, page)


def page_of(rows: Sequence[Any], page: int) -> dict[str, Any]:
    """Return a page of some rows, counted from 1, as JSON."""
    return {"rows": rows[(page - 1) * PAGE : page * PAGE], "total": len(rows), "page": page, "size": PAGE}


@lru_cache(maxsize=12)  # two comparisons of six runs
def dev_rows(root: str, key: str) -> Sequence[dict[str, Any]]:
    """Return all rows of an artifact of evaluate in the home `root`, as select_rows orders them. It never changes."""
    with suppress(OSError, ArithmeticError, ValueError, KeyError, TypeError):
        with open_artifact("evaluate", key, "rows.jsonl") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST:
                return ()
            rows = [_row(parse(line)) for line in file]
        return sorted(rows, key=lambda row: -abs(row["confidence"] or row["error"] or 0))
    return ()


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
        "explanation": [_word(part) for part in line.get("explanation", [])],
    }


def _word(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a word of a row, in which of its texts it is, and its contribution to each predicted label, or to ""."""
    given = part["contribution"]
    found = given if isinstance(given, dict) else {"": given}
    numbers = {label: value for label, value in found.items() if is_number(value)}
    return {"word": str(part["word"]), "text": part.get("text", 1), "contributions": numbers}


def _name(label: Any) -> str:
    """Return a label, or the labels of a row that may have several, as one text."""
    return ", ".join(map(str, label)) if isinstance(label, list) else str(label)
