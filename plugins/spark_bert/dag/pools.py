"""The Airflow pools, which limit how many stages train and how many work on Spark, and the listener that makes them."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from airflow.listeners import hookimpl

from include.stages import STAGES, BadInput

#: The variable in which a deployment changes the slots of the pools, as JSON: {"training": 2}.
VARIABLE = "SPARK_BERT_POOLS"
_SLOTS = {"training": 1, "spark": 2}
_DESCRIPTIONS = {
    "training": "Stages that train. Each one uses all processors or GPUs of its machine.",
    "spark": "Stages that work on Spark.",
}


def pool(stage: str) -> str:
    """Return the name of the pool for the stage."""
    slots()  # if the sizes are not valid, Dags do not load; otherwise their tasks would wait for pools forever
    if STAGES[stage].image != "data":
        return _name("training")
    return _name("spark") if STAGES[stage].spark else "default_pool"


def slots() -> dict[str, int]:
    """Return the number of slots of each pool. Raise BadInput if $SPARK_BERT_POOLS is not valid."""
    text = os.environ.get(VARIABLE) or "{}"
    try:
        sizes = {**_SLOTS, **json.loads(text)}
    except (ValueError, TypeError):
        sizes = {}
    if set(sizes) != set(_SLOTS) or not all(type(size) is int and size > 0 for size in sizes.values()):
        raise BadInput(f"""{VARIABLE}={text!r} is not valid: write it as {VARIABLE}='{{"training": 2, "spark": 4}}'""")
    return {_name(kind): size for kind, size in sizes.items()}


def make_pools() -> None:
    """Create the pools in Airflow's database. An existing pool keeps its size unless $SPARK_BERT_POOLS is set."""
    from airflow.models.pool import Pool  # imported here because Airflow tasks have no access to the database
    from sqlalchemy.exc import IntegrityError

    existing = {found.pool for found in Pool.get_pools()}
    for kind, (name, size) in zip(_SLOTS, slots().items(), strict=True):
        if name not in existing or os.environ.get(VARIABLE):
            with suppress(IntegrityError):  # another component of Airflow has created it meanwhile
                Pool.create_or_update_pool(name, size, _DESCRIPTIONS[kind], include_deferred=False)


@hookimpl
def on_starting(component: object) -> None:
    """Create the pools when a component of Airflow starts, unless it is an Airflow task, which has no database."""
    if type(component).__module__ == "airflow.jobs.job":
        make_pools()


def _name(kind: str) -> str:
    return f"spark_bert_{kind}"
