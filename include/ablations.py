"""Ablations: the list of configurations (ablations.yaml), their days, and the arm that each makes of a task and a seed.

Airflow's backfill knows days only, so the i-th configuration has the i-th day from EPOCH on, for ever.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import yaml

from include.stages import BadInput

FILE = Path(__file__).with_name("ablations.yaml")
EPOCH = date(2000, 1, 1)
#: The configurations of the Spark-BERT paper's table 5, in its order.
TABLE_5 = ("base", "dynamic-batching", "mixed-precision", "gradient-compression", "full")
#: The named experiment that a task's arms differ from.
EXPERIMENTS = {"movie-reviews": "movies", "SST-2": "sst2", "CoLA": "cola", "STS-B": "stsb"}
_ID = re.compile(r"[a-z][a-z0-9-]{0,49}")


@dataclass(frozen=True)
class Configuration:
    """One configuration.

    Attributes:
        id: its name, which is never given to another one.
        about: one line that says what it changes.
        changes: "section.field" to value, on top of the task's named experiment.
    """

    id: str
    about: str
    changes: dict[str, Any]


def parse(text: str) -> dict[str, Configuration]:
    """Id to configuration, in order. Raises BadInput when the list holds anything else, or an id twice."""
    found: dict[str, Configuration] = {}
    for row in yaml.safe_load(text):
        if not isinstance(row, dict) or set(row) != {"id", "about", "changes"}:
            raise BadInput(f"{FILE.name}: {row!r} must have id, about and changes")
        if not _ID.fullmatch(row["id"]) or row["id"] in found:
            raise BadInput(f"{FILE.name}: the id {row['id']!r} must be new, of small letters, digits and hyphens")
        found[row["id"]] = Configuration(**row)
    return found


CONFIGURATIONS = parse(FILE.read_text(encoding="utf-8"))


def find(identity: str) -> Configuration:
    """The configuration of that id. Raises BadInput when there is none."""
    if identity not in CONFIGURATIONS:
        close = difflib.get_close_matches(identity, CONFIGURATIONS, n=1)
        hint = f", did you mean {close[0]}?" if close else ""
        raise BadInput(f"unknown configuration {identity!r}{hint}: write one of {', '.join(CONFIGURATIONS)}")
    return CONFIGURATIONS[identity]


def day(identity: str) -> date:
    """The configuration's day. Raises BadInput when there is no such configuration."""
    return EPOCH + timedelta(list(CONFIGURATIONS).index(find(identity).id))


def study(task: str, overrides: Mapping[str, Any]) -> str:
    """The name of all arms that share task and overrides: the task's, and a digest of the overrides if any."""
    if not overrides:
        return task
    return f"{task}-{hashlib.sha256(json.dumps(overrides, sort_keys=True).encode()).hexdigest()[:6]}"


def arm(configuration: Configuration, seed: int, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What an arm changes of its task's named experiment, as "section.field" to value.

    Every arm has two ranks unless the study says otherwise: one rank exchanges nothing that could be compressed, and
    auto would be another number on another machine.

    Raises BadInput when the study's overrides set what the configuration, the task or the seed decides.
    """
    decided = {**dict.fromkeys(configuration.changes, f"the configuration {configuration.id}"), **_DECIDED}
    for key in overrides:
        if key in decided:
            raise BadInput(f"{key} = {overrides[key]!r} cannot hold for the whole study: {decided[key]} decides it")
    return {"training.ranks": 2, **overrides, **configuration.changes, "training.seed": seed}


_DECIDED = {"training.seed": "the param seed", "data.task": "the param task", "experiment": "the param task"}
