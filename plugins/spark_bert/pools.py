"""Airflow's pools: how many tasks may train at once, and how many may work on Spark."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from include.stages import STAGES, BadInput

#: Where a deployment says how many tasks a pool lets run at once: {"training": 2}.
VARIABLE = "SPARK_BERT_POOLS"
_SLOTS = {"training": 1, "spark": 2}
_DESCRIPTIONS = {
    "training": "Stages that train: each takes all the processors or GPUs of its machine.",
    "spark": "Stages that work on Spark.",
}


def pool(stage: str) -> str:
    """The pool of a stage's task.

    Raises BadInput for wrong sizes, as slots does: else Airflow starts without the pools, and tasks wait for ever.
    """
    slots()
    if STAGES[stage].image == "train":
        return _name("training")
    return _name("spark") if STAGES[stage].spark else "default_pool"


def slots() -> dict[str, int]:
    """How many tasks each pool lets run at once. Raises BadInput for what $SPARK_BERT_POOLS cannot mean."""
    text = os.environ.get(VARIABLE) or "{}"
    try:
        sizes = {**_SLOTS, **json.loads(text)}
    except (ValueError, TypeError):
        sizes = {}
    if set(sizes) != set(_SLOTS) or not all(type(size) is int and size > 0 for size in sizes.values()):
        raise BadInput(f"""{VARIABLE}={text!r}: write as {VARIABLE}='{{"training": 2, "spark": 4}}'""")
    return {_name(kind): size for kind, size in sizes.items()}


def make_pools() -> None:
    """Make the pools in Airflow's database. One that exists keeps its size, unless $SPARK_BERT_POOLS is set."""
    from airflow.models.pool import Pool  # only for processes that have the database, which no task has
    from sqlalchemy.exc import IntegrityError

    existing = {found.pool for found in Pool.get_pools()}
    for kind, (name, size) in zip(_SLOTS, slots().items(), strict=True):
        if name not in existing or os.environ.get(VARIABLE):
            with suppress(IntegrityError):  # another process of Airflow, which starts as well, was faster
                Pool.create_or_update_pool(name, size, _DESCRIPTIONS[kind], include_deferred=False)


def _name(kind: str) -> str:
    return f"spark_bert_{kind}"
