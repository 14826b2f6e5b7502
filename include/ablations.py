"""The configurations of ablations (ablations.yaml), and the arm that a configuration, a task and a seed make.

Airflow backfills over logical dates, so each configuration stands for a day: the i-th one is the i-th day from EPOCH
on. This assignment never changes.
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
#: The configurations in table 5 of the Spark-BERT paper, in the order of the table.
TABLE_5 = ("base", "dynamic-batching", "mixed-precision", "gradient-compression", "full")
#: The named experiment to which the arms of a task apply their changes, by task.
EXPERIMENTS = {"movie-reviews": "movies", "SST-2": "sst2", "CoLA": "cola", "STS-B": "stsb"}
_ID = re.compile(r"[a-z][a-z0-9-]{0,49}")


@dataclass(frozen=True)
class Configuration:
    """A configuration, which changes values of a task's named experiment. Its id is never used for another one."""

    id: str
    about: str
    changes: dict[str, Any]


def parse(text: str) -> dict[str, Configuration]:
    """Return the configurations in ablations.yaml by their ids. Raise BadInput if an entry is malformed."""
    found: dict[str, Configuration] = {}
    for row in yaml.safe_load(text):
        if not isinstance(row, dict) or set(row) != {"id", "about", "changes"}:
            raise BadInput(f"{FILE.name}: the entry {row!r} must have exactly the keys id, about and changes")
        if not _ID.fullmatch(row["id"]) or row["id"] in found:
            raise BadInput(
                f"{FILE.name}: the id {row['id']!r} must be unique and consist of lowercase letters, digits and hyphens"
            )
        found[row["id"]] = Configuration(**row)
    return found


CONFIGURATIONS = parse(FILE.read_text(encoding="utf-8"))


def find(identity: str) -> Configuration:
    """Return the configuration with this id. Raise BadInput if there is none."""
    if identity not in CONFIGURATIONS:
        close = difflib.get_close_matches(identity, CONFIGURATIONS, n=1)
        hint = f", did you mean {close[0]}?" if close else ""
        raise BadInput(f"unknown configuration {identity!r}{hint}: write one of {', '.join(CONFIGURATIONS)}")
    return CONFIGURATIONS[identity]


def day(identity: str) -> date:
    """Return the day that stands for a configuration. Raise BadInput if there is no such configuration."""
    return EPOCH + timedelta(list(CONFIGURATIONS).index(find(identity).id))


def study(task: str, overrides: Mapping[str, Any]) -> str:
    """Return the name of a study: the task, followed by a digest of the overrides of all its arms if there are any."""
    if not overrides:
        return task
    return f"{task}-{hashlib.sha256(json.dumps(overrides, sort_keys=True).encode()).hexdigest()[:6]}"


def arm(configuration: Configuration, seed: int, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes that an arm makes to its task's named experiment, as values by "section.field".

    Every arm has two ranks unless the overrides set another number: a single rank exchanges no gradients that could be
    compressed, and the meaning of auto depends on the machine. Raise BadInput if an override sets a field that the
    configuration, the task or the seed determines.
    """
    decided = {**dict.fromkeys(configuration.changes, f"the configuration {configuration.id}"), **_DECIDED}
    for key in overrides:
        if key in decided:
            raise BadInput(
                f"{key} = {overrides[key]!r} cannot hold for the whole study, because {decided[key]} sets it: remove it"
            )
    return {"training.ranks": 2, **overrides, **configuration.changes, "training.seed": seed}


_DECIDED = {"training.seed": "the param seed", "data.task": "the param task", "experiment": "the param task"}
