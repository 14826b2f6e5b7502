"""The rows of the dev split: their predictions as tables and as JSON for viewers, and the worst mistakes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.artifacts import write_json
from include.stages import BadInput
from tasks.encoder.labels import to_column
from tasks.scoring.predictions import Array, answer_columns, label_names, write_csv
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.slices import slices_of
from tasks.scoring.thresholds import HALF
from tasks.scoring.verdict import METRICS, PREDICTIONS
from tasks.sources.values import python_value

#: Columns of the user's file by their names, with one value for each row.
Kept = Mapping[str, pa.ChunkedArray]
#: Explanations of rows, by their numbers: see `explain` in tasks/inference/explanation.py.
Explained = Mapping[int, Sequence[Mapping[str, Any]]]
NOTHING: Mapping[Any, Any] = MappingProxyType({})
MISTAKES = 20


def kept_of(file: Path, scored: ScoredSplit) -> Kept:
    """Return the columns of data.keep, as validate has kept them, for the rows of a split; nothing without the file."""
    if not file.exists():
        return NOTHING
    table = pq.read_table(file)
    places = pc.index_in(pa.array(scored.rows, pa.int64()), table["row"])
    if places.null_count:
        raise BadInput(f"{file} has other rows than the dev split: run validate again")
    return {name: table[name].take(places) for name in table.column_names if name != "row"}


def write_results(
    folder: Path,
    dev: ScoredSplit,
    summary: Mapping[str, Any],
    kept: Kept = NOTHING,
    escape: bool = False,
    explained: Explained = NOTHING,
) -> None:
    """Write the summary as metrics.json, and the predictions for later stages, for people and for viewers."""
    write_json(folder / METRICS, summary)
    pq.write_table(predictions_table(dev), folder / PREDICTIONS)
    write_csv(_listing(dev, kept), folder / "predictions.csv", dev.task.separator, escape)
    write_json_lines(dev, folder / "rows.jsonl", explained)


def predictions_table(scored: ScoredSplit) -> pa.Table:
    """Return the columns row, label and prediction and, unless the labels are scores, probabilities and temperature."""
    columns = {"row": scored.rows, "label": to_column(scored.labels), "prediction": to_column(scored.predicted)}
    if scored.task.kind != "regression":
        columns["probabilities"] = pa.array(list(scored.probabilities), type=pa.list_(pa.float64()))
        columns["temperature"] = np.broadcast_to(scored.temperatures, len(scored))  # with which they are raw again
    return pa.table(columns)


def _listing(scored: ScoredSplit, kept: Kept) -> pa.Table:
    """Return a readable table of all rows: kept columns of the file, texts, names of the labels, and predictions."""
    texts = {f"sentence{number}": list(column) for number, column in enumerate(zip(*scored.sentences, strict=True), 1)}
    task, probabilities = scored.task, None if scored.task.kind == "regression" else scored.probabilities
    answers = answer_columns(task.kind, task.label_names, scored.predicted, probabilities)
    columns = {"row": scored.rows, **texts, "label": label_names(task, scored.labels), **answers}
    others = {name: column for name, column in kept.items() if name.casefold() not in columns}  # its label is there
    return pa.table({"row": scored.rows, **others, **columns})


def write_json_lines(scored: ScoredSplit, file: Path, explained: Explained = NOTHING) -> None:
    """Write one JSON object per row and line. All characters are ASCII, so nothing in a text looks like a line end.

    Each has row, text, for pairs text2, label, prediction and slices. In a classification label and prediction are
    names, in a multi-label task lists of names; both have correct (all labels of the row are) and the probabilities in
    the order of the label names, a classification also confidence. A regression has error, prediction minus label.
    Rows that are explained have explanation.
    """
    with file.open("w", encoding="ascii") as stream:
        for row in _objects(scored):
            if row["row"] in explained:
                row["explanation"] = explained[row["row"]]
            stream.write(json.dumps(row, allow_nan=False) + "\n")


def _objects(scored: ScoredSplit) -> Iterator[dict[str, Any]]:
    labels, predicted = (label_names(scored.task, side).tolist() for side in (scored.labels, scored.predicted))
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


def worst_places(scored: ScoredSplit) -> list[int]:
    """Return the positions of the worst mistakes: see `worst`."""
    return _worst(scored)[0]


def worst(scored: ScoredSplit, kept: Kept = NOTHING) -> list[dict[str, Any]]:
    """Return the worst mistakes: the most confident errors, or the largest ones of a regression.

    For a multi-label task they are the rows with the wrong label whose probability is farthest from its threshold, and
    they have this label and the probability. Kept columns that repeat a text are left out.
    """
    places, figures = _worst(scored)
    texts = [scored.sentences[at] for at in places]
    labels, predicted = (label_names(scored.task, side[places]).tolist() for side in (scored.labels, scored.predicted))
    others = {}
    for name, column in kept.items():
        values = [_shown(column[at]) for at in places]
        if any(value not in sentences for value, sentences in zip(values, texts, strict=True)):
            others[name] = values
    return [
        {
            "row": int(scored.rows[at]),
            "sentences": texts[number],
            "label": labels[number],
            "prediction": predicted[number],
            **{name: values[at].item() for name, values in figures.items()},
            "kept": {name: values[number] for name, values in others.items()},
        }
        for number, at in enumerate(places)
    ]


def _worst(scored: ScoredSplit) -> tuple[list[int], dict[str, Array]]:
    """Return the positions of the worst mistakes, and the figures that show how wrong a row is, [n] each."""
    if scored.task.kind == "regression":
        error = scored.predicted - scored.labels
        return np.argsort(-np.abs(error), kind="stable")[:MISTAKES].tolist(), {"error": error}
    wrong = scored.labels != scored.predicted
    if scored.task.kind == "classification":
        order = np.argsort(-scored.confidence, kind="stable")
        return order[wrong[order]][:MISTAKES].tolist(), {"confidence": scored.confidence}
    thresholds = HALF if scored.thresholds is None else scored.thresholds
    distance = np.where(wrong, np.abs(scored.probabilities - thresholds), -1.0)
    order, label = np.argsort(-distance.max(axis=1), kind="stable"), distance.argmax(axis=1)
    figures = {
        "worst": np.array(scored.task.label_names)[label],
        "probability": scored.probabilities[np.arange(len(scored)), label],
    }
    return order[wrong[order].any(axis=1)][:MISTAKES].tolist(), figures


def _shown(value: pa.Scalar) -> str:
    found = python_value(value)
    return "" if found is None else str(found)
