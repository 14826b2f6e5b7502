"""The dev split row by row: for later stages, and for a person to look through."""

from __future__ import annotations

import pyarrow as pa

from tasks.scoring.predictions import answer_columns, class_names
from tasks.scoring.scored import Scored


def predictions_table(scored: Scored) -> pa.Table:
    """Columns row, label and prediction, and for a classifier the probabilities of all classes."""
    columns = {"row": scored.rows, "label": scored.labels, "prediction": scored.predicted}
    if scored.task.kind == "classification":
        columns["probabilities"] = pa.array(list(scored.probabilities), type=pa.list_(pa.float64()))
    return pa.table(columns)


def listing(scored: Scored) -> pa.Table:
    """Every row for a person to look through: its text, its label by name, and what was predicted."""
    classes = scored.task.kind == "classification"
    texts = {f"sentence{number}": list(column) for number, column in enumerate(zip(*scored.sentences, strict=True), 1)}
    label = class_names(scored.task, scored.labels) if classes else scored.labels
    answers = answer_columns(scored.task, scored.predicted, scored.probabilities if classes else None)
    return pa.table({"row": scored.rows, **texts, "label": label, **answers})
