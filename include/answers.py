"""The names of the columns that every file of predictions has. Columns kept from the user's file are added to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

ROW, PREDICTION, LABEL, PROBABILITY = "row", "prediction", "predicted_label", "probability"
#: The additional column of a scored table: the version of the model.
MODEL_VERSION = "model_version"
#: The column with explanations, which a scored table has if `scoring.explain` asks for them.
EXPLANATION = "explanation"
#: The additional columns with prediction.max_risk: why a row has no label, its set of labels, and its interval.
RISK = ABSTAINED, LABEL_SET, LOW, HIGH = "abstained", "label_set", "low", "high"
#: Two scores are the same answer if they differ by no more than this share of the task's range.
SAME_SCORE = 0.05


def probability_columns(labels: Sequence[str]) -> list[str]:
    """Return the columns of the labels' probabilities: Spark and DuckDB refuse names that differ only in case."""
    counts = Counter(label.casefold() for label in labels)
    return [
        f"{PROBABILITY}:{label}" + (f" ({at})" if counts[label.casefold()] > 1 else "")
        for at, label in enumerate(labels)
    ]


def reserved(column: str, max_risk: float | None = None) -> bool:
    """Return whether a column of the user's file has a name that the predictions use. Case is ignored."""
    name, names = column.casefold(), (ROW, PREDICTION, LABEL, PROBABILITY, *(RISK if max_risk else ()))
    return name in names or name.startswith(f"{PROBABILITY}:")
