"""What the papers behind this project claim of models, frameworks and methods, and where they contradict themselves.

Tables 1, 4 and 5 are those of the paper on Spark-BERT (He Yeyang); the figures of CoLA and STS-B are those of a course
report on DistilBERT and Spark.
"""

from __future__ import annotations

from typing import NamedTuple

from include.ablations import TABLE_5


class MethodClaim(NamedTuple):
    """A row of table 5, for SST-2 with BERT-base, in percent."""

    accuracy: float
    throughput: float  # the increase over the first row
    memory: float  # the decrease from the first row


_TABLE_5 = (
    MethodClaim(90.5, 0.0, 0.0),
    MethodClaim(91.2, 12.3, 8.5),
    MethodClaim(91.8, 18.7, 37.0),
    MethodClaim(92.2, 24.5, 42.5),
    MethodClaim(92.7, 37.2, 58.3),
)
METHODS = dict(zip(TABLE_5, _TABLE_5, strict=True))


#: What the papers claim of other techniques, by their configuration.
TECHNIQUES = {
    "focal": "used, without a figure",
    "class-weights": "CoLA 0.18 to 0.4551, with early stopping",
    "domain-pretraining": "SST-2 0.9040 to 0.9090, of 10,000 rows",
    **dict.fromkeys(("augment-synonyms", "augment-masking", "augment-order"), "used, without a figure"),
    **dict.fromkeys(("stop-words", "lexicon", "layer-decay"), "used, without a figure"),
}


class ModelClaim(NamedTuple):
    """A claimed metric of a model or framework."""

    table: str
    name: str
    value: float
    like: tuple[str, ...] = ()  # the models of our rows that are of the same kind


MODELS: dict[str, tuple[ModelClaim, ...]] = {
    "SST-2": (
        ModelClaim("table 1", "MLlib", 0.859, ("tfidf",)),
        ModelClaim("table 1", "Horovod", 0.912),
        ModelClaim("table 1", "DeepSpeed", 0.921),
        ModelClaim("table 4", "CNN", 0.887, ("textcnn",)),
        ModelClaim("table 4", "DistilBERT", 0.910, ("distilbert-base-uncased",)),
        ModelClaim("table 4", "BERT-base", 0.912, ("bert-base-uncased",)),
        ModelClaim("table 4", "ALBERT-base", 0.915, ("albert-base-v2",)),
        ModelClaim("table 4", "Spark-BERT", 0.927, ("all-mpnet-base-v2", "bert-base-uncased")),
    ),
    "CoLA": (ModelClaim("course report", "DistilBERT", 0.4551, ("distilbert-base-uncased",)),),
    "STS-B": (ModelClaim("course report", "DistilBERT", 0.8597, ("distilbert-base-uncased",)),),
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
