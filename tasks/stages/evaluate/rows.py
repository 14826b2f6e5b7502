"""The predictions for each row of the dev split, as a table for later stages and as a readable one."""

from __future__ import annotations

import pyarrow as pa

from tasks.encoder.labels import to_column
from tasks.scoring.predictions import answer_columns, label_names
from tasks.scoring.scored import ScoredSplit


def predictions_table(scored: ScoredSplit) -> pa.Table:
    """Return the columns row, label and prediction and, unless the labels are scores, all probabilities."""
    columns = {"row": scored.rows, "label": to_column(scored.labels), "prediction": to_column(scored.predicted)}
    if scored.task.kind != "regression":
        columns["probabilities"] = pa.array(list(scored.probabilities), type=pa.list_(pa.float64()))
    return pa.table(columns)


def listing(scored: ScoredSplit) -> pa.Table:
    """Return a readable table of all rows: the texts, the names of the labels, and the predictions."""
    texts = {f"sentence{number}": list(column) for number, column in enumerate(zip(*scored.sentences, strict=True), 1)}
    task, probabilities = scored.task, None if scored.task.kind == "regression" else scored.probabilities
    answers = answer_columns(task.kind, task.label_names, scored.predicted, probabilities)
    return pa.table({"row": scored.rows, **texts, "label": label_names(task, scored.labels), **answers})
