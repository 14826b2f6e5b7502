"""The names of the columns that every file of predictions has. Columns kept from the user's file are added to them."""

from __future__ import annotations

ROW, PREDICTION, LABEL, PROBABILITY = "row", "prediction", "predicted_label", "probability"
#: The column that a scored table has besides: the version of the model.
MODEL_VERSION = "model_version"


def probability_of(label: str) -> str:
    """Return the name of the column that holds the probability of a class."""
    return f"{PROBABILITY}:{label}"


def reserved(column: str) -> bool:
    """Return whether a column of the user's file has a name that the predictions use. Case is ignored."""
    name = column.casefold()
    return name in (ROW, PREDICTION, LABEL, PROBABILITY) or name.startswith(probability_of(""))
