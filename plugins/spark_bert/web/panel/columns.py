"""The columns of the table of runs, among them all fields of the experiment and metrics of dev, and their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

from include.experiment import Experiment
from include.glue import TASKS
from include.stages import flatten
from spark_bert.web.panel.records import Entry, mapping, seconds_at_work

#: The columns that are shown unless a query names others.
SHOWN = (
    "state", "run", "dag_id", "data.task", "model.name", "score", "metric", "gate", "rows_per_second", "seconds",
    "changed",
)  # fmt: skip
#: What the columns of metrics begin with.
METRIC = "metrics."
_SECTIONS: dict[str, dict[str, Any]] = Experiment().model_dump(mode="json")
#: The value of each field ("section.field") of an experiment that does not set it.
DEFAULTS: dict[str, Any] = flatten(_SECTIONS)


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    key: str  # its name in addresses
    title: str  # its heading
    #: How its values are written: text, state, run, passed, number, share, score, bytes, seconds, time, or value.
    kind: str = "text"


_OWN = (
    Column("state", "State", "state"),
    Column("run", "Run", "run"),
    Column("dag_id", "Dag"),
    Column("run_id", "Run id"),
    Column("changed", "Last change", "time"),
    Column("score", "Score", "score"),
    Column("metric", "Metric"),
    Column("gate", "Gate", "passed"),
    Column("rows_per_second", "Rows/s", "number"),
    Column("seconds", "Time", "seconds"),
    Column("train_seconds", "Training time", "seconds"),
    Column("steps", "Steps", "number"),
    Column("stages", "Stages", "number"),
    Column("memory", "Memory", "bytes"),
    Column("padding_share", "Padding", "share"),
    Column("device", "Device"),
)
_TITLES = {"data.task": "Task", "model.name": "Encoder"}
_BY_KEY = {column.key: column for column in _OWN} | {
    key: Column(key, _TITLES.get(key, key), "value") for key in DEFAULTS
}


def column(key: str) -> Column:
    """Return the column with the key. A metric or field that this version does not know is a column too."""
    return _BY_KEY.get(key) or Column(key, key.removeprefix(METRIC), "score" if key.startswith(METRIC) else "value")


def choices(metrics: Iterable[str]) -> list[Column]:
    """Return all columns to choose from, where these are the metrics that some run has."""
    return [*_OWN, *(column(f"{METRIC}{name}") for name in sorted(metrics)), *map(column, DEFAULTS)]


def find_values(
    experiment: Mapping[str, Any], metrics: Mapping[str, float], stages: Mapping[str, Entry]
) -> dict[str, Any]:
    """Return the values of a run by column: what its stages say, and the fields that differ from their defaults."""
    fields = changed_fields(experiment)
    trained = stages["train"].result if "train" in stages else {}
    task = fields.get("data.task", DEFAULTS["data.task"])
    metric = trained.get("metric") or (TASKS[task].metric if isinstance(task, str) and task in TASKS else None)
    score = metrics.get(metric, trained.get("best")) if isinstance(metric, str) else None
    found = {
        "metric": metric,
        "score": score if isinstance(score, int | float) else None,
        "gate": stages["gate"].result.get("passed") if "gate" in stages else None,
        **{name: trained.get(name) for name in ("rows_per_second", "steps", "memory", "device", "padding_share")},
        "train_seconds": trained.get("seconds"),
        "seconds": seconds_at_work(stages.values()),
        "stages": len(stages),
        **fields,
    }
    return {name: value for name, value in found.items() if value is not None}


def changed_fields(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an experiment in a record ("section.field") that differ from their defaults."""
    return {
        intern(f"{section}.{name}"): value
        for section, fields in experiment.items()
        if fields != _SECTIONS.get(section)  # which they mostly equal, and this is seen at once
        for name, value in mapping(fields).items()
        if _SECTIONS.get(section, {}).get(name) != value
    }
