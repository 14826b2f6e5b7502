"""The predictions for each row of the dev split: a table for later stages, one for people, and JSON for viewers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.stages import BadInput
from tasks.encoder.labels import to_column
from tasks.scoring.predictions import answer_columns, label_names
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.slices import slices_of

#: Columns of the user's file by their names, with one value for each row.
Kept = Mapping[str, pa.ChunkedArray]
NOTHING: Kept = MappingProxyType({})


def kept_of(file: Path, scored: ScoredSplit) -> Kept:
    """Return the columns of data.keep, as validate has kept them, for the rows of a split; nothing without the file."""
    if not file.exists():
        return NOTHING
    table = pq.read_table(file)
    places = pc.index_in(pa.array(scored.rows, pa.int64()), table["row"])
    if places.null_count:
        raise BadInput(f"{file} has other rows than the dev split: run validate again")
    return {name: table[name].take(places) for name in table.column_names if name != "row"}


def predictions_table(scored: ScoredSplit) -> pa.Table:
    """Return the columns row, label and prediction and, unless the labels are scores, all probabilities."""
    columns = {"row": scored.rows, "label": to_column(scored.labels), "prediction": to_column(scored.predicted)}
    if scored.task.kind != "regression":
        columns["probabilities"] = pa.array(list(scored.probabilities), type=pa.list_(pa.float64()))
    return pa.table(columns)


def listing(scored: ScoredSplit, kept: Kept = NOTHING) -> pa.Table:
    """Return a readable table of all rows: kept columns of the file, texts, names of the labels, and predictions."""
    texts = {f"sentence{number}": list(column) for number, column in enumerate(zip(*scored.sentences, strict=True), 1)}
    task, probabilities = scored.task, None if scored.task.kind == "regression" else scored.probabilities
    answers = answer_columns(task.kind, task.label_names, scored.predicted, probabilities)
    columns = {"row": scored.rows, **texts, "label": label_names(task, scored.labels), **answers}
    others = {name: column for name, column in kept.items() if name.casefold() not in columns}  # its label is there
    return pa.table({"row": scored.rows, **others, **columns})


def write_json_lines(scored: ScoredSplit, file: Path) -> None:
    """Write one JSON object per row and line. All characters are ASCII, so nothing in a text looks like a line end."""
    with file.open("w", encoding="ascii") as stream:
        for row in _objects(scored):
            stream.write(json.dumps(row, allow_nan=False) + "\n")


def _objects(scored: ScoredSplit) -> Iterator[dict[str, Any]]:
    """Yield the rows in the order of the split.

    Each has row, text, for pairs text2, label, prediction and slices. In a classification label and prediction are
    names, in a multi-label task lists of names; both have correct (all labels of the row are) and the probabilities in
    the order of the label names, a classification also confidence. A regression has error, prediction minus label.
    """
    labels, predicted = (_plain(label_names(scored.task, side)) for side in (scored.labels, scored.predicted))
    answers, parts = _answers(scored), slices_of(scored)
    members = np.array([part.mask for part in parts])
    for at, texts in enumerate(scored.sentences):
        yield {
            "row": int(scored.rows[at]),
            **dict(zip(("text", "text2"), texts, strict=False)),
            "label": labels[at],
            "prediction": predicted[at],
            **{name: values[at] for name, values in answers.items()},
            "slices": [parts[place].name for place in np.flatnonzero(members[:, at])],
        }


def _answers(scored: ScoredSplit) -> dict[str, list[Any]]:
    """Return what an answer says besides the prediction, each with one value per row."""
    if scored.task.kind == "regression":
        return {"error": (scored.predicted - scored.labels).tolist()}
    right = scored.predicted == scored.labels
    probabilities = scored.probabilities.round(6).tolist()
    if scored.task.kind == "multilabel":
        return {"correct": right.all(axis=1).tolist(), "probabilities": probabilities}
    confidence = scored.confidence.round(6).tolist()
    return {"correct": right.tolist(), "confidence": confidence, "probabilities": probabilities}


def _plain(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist() if isinstance(column, pa.Array) else column.tolist()
    return values
