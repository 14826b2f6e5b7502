"""What the papers behind this project claim of models and frameworks, and where their figures contradict one another.

Tables 1 and 4 are those of the paper on Spark-BERT (He Yeyang); the figures of CoLA and STS-B are of a course report on
DistilBERT and Spark.
"""

from __future__ import annotations

from typing import NamedTuple


class Claim(NamedTuple):
    """A claimed metric.

    Attributes:
        table: Where it is claimed.
        name: The model or the framework.
        value: The metric.
        like: The models of our rows that are of the same kind.
    """

    table: str
    name: str
    value: float
    like: tuple[str, ...] = ()


_LARGE = ("all-mpnet-base-v2", "bert-base-uncased")
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "SST-2": (
        Claim("table 1", "MLlib", 0.859, ("tfidf",)),
        Claim("table 1", "Horovod", 0.912),
        Claim("table 1", "DeepSpeed", 0.921),
        Claim("table 4", "CNN", 0.887, ("textcnn",)),
        Claim("table 4", "DistilBERT", 0.910, ("distilbert-base-uncased",)),
        Claim("table 4", "BERT-base", 0.912, ("bert-base-uncased",)),
        Claim("table 4", "ALBERT-base", 0.915, ("albert-base-v2",)),
        Claim("table 4", "Spark-BERT", 0.927, _LARGE),
    ),
    "CoLA": (Claim("course report", "DistilBERT", 0.4551, ("distilbert-base-uncased",)),),
    "STS-B": (Claim("course report", "DistilBERT", 0.8597, ("distilbert-base-uncased",)),),
}

_ROWS, _MINUTES, _MINUTES_ALONE, _NODES = 67_349, 9.2, 58, 8
_CLAIMED, _TIMES = 1_842, 7.1
CONTRADICTIONS = (
    f"{_ROWS:,} rows in {_MINUTES} minutes, an epoch on {_NODES} nodes, are {_ROWS / _MINUTES / 60:.0f} rows/s, not "
    f"{_CLAIMED:,}.",
    f"{_CLAIMED:,} rows/s are said to be {_TIMES} times one machine, which would then need "
    f"{_ROWS / (_CLAIMED / _TIMES) / 60:.1f} minutes for an epoch, not {_MINUTES_ALONE}.",
    f"{_MINUTES_ALONE} minutes to {_MINUTES} on {_NODES} nodes are {_MINUTES_ALONE / _MINUTES:.1f} times, an "
    f"efficiency of {_MINUTES_ALONE / _MINUTES / _NODES:.2f}, not the 0.92 that is claimed elsewhere.",
)
