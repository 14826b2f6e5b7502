"""The predictions for each row of the dev split, as a table for later stages and as a readable one."""

from __future__ import annotations

import pyarrow as pa

from tasks.scoring.predictions import answer_columns, class_names
from tasks.scoring.scored import ScoredSplit


def predictions_table(scored: ScoredSplit) -> pa.Table:
    """Return the columns row, label and prediction and, for a classification, the probabilities of all classes."""
    columns = {"row": scored.rows, "label": scored.labels, "prediction": scored.predicted}
    if scored.task.kind == "classification":
        columns["probabilities"] = pa.array(list(scored.probabilities), type=pa.list_(pa.float64()))
    return pa.table(columns)


def listing(scored: ScoredSplit) -> pa.Table:
    """Return a readable table of all rows: the texts, the names of the labels, and the predictions."""
    classes = scored.task.kind == "classification"
    texts = {f"sentence{number}": list(column) for number, column in enumerate(zip(*scored.sentences, strict=True), 1)}
    label = class_names(scored.task.label_names, scored.labels) if classes else scored.labels
    answers = answer_columns(scored.task.label_names, scored.predicted, scored.probabilities if classes else None)
    return pa.table({"row": scored.rows, **texts, "label": label, **answers})
