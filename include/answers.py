"""The columns of predictions.parquet and predictions.csv that are the project's own; kept ones stand beside them."""

from __future__ import annotations

ROW, PREDICTION, LABEL, PROBABILITY = "row", "prediction", "predicted_label", "probability"


def probability_of(label: str) -> str:
    """The column that holds a class's probability."""
    return f"{PROBABILITY}:{label}"


def reserved(column: str) -> bool:
    """Whether a column of one's own file cannot keep its name there. Case does not tell two names apart."""
    name = column.casefold()
    return name in (ROW, PREDICTION, LABEL, PROBABILITY) or name.startswith(probability_of(""))
