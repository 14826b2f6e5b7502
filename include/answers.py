"""The names of the columns that every file of predictions has. Columns kept from the user's file are added to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

ROW, PREDICTION, LABEL, PROBABILITY = "row", "prediction", "predicted_label", "probability"
#: The additional column of a scored table: the version of the model.
MODEL_VERSION = "model_version"
#: The column with explanations, which a scored table has if `scoring.explain` asks for them.
EXPLANATION = "explanation"
#: Two scores are the same answer if they differ by no more than this share of the task's range.
SAME_SCORE = 0.05


def probability_columns(labels: Sequence[str]) -> list[str]:
    """Return the columns of the labels' probabilities: Spark and DuckDB refuse names that differ only in case."""
    counts = Counter(label.casefold() for label in labels)
    return [
        f"{PROBABILITY}:{label}" + (f" ({at})" if counts[label.casefold()] > 1 else "")
        for at, label in enumerate(labels)
    ]


def reserved(column: str) -> bool:
    """Return whether a column of the user's file has a name that the predictions use. Case is ignored."""
    name = column.casefold()
    return name in (ROW, PREDICTION, LABEL, PROBABILITY) or name.startswith(f"{PROBABILITY}:")
