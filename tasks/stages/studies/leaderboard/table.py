"""The content of leaderboard.json: for each task, one row per model with means over its seeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tasks.reporting.figures import mean, metric_of
from tasks.reporting.papers import CONTRADICTIONS, MODELS
from tasks.scoring.paired import compare, read_predictions
from tasks.stages.studies.leaderboard.entries import Entry

Row = dict[str, Any]


def summarize(entries: list[Entry], warnings: list[str]) -> dict[str, Any]:
    """Return the content of leaderboard.json.

    A figure is the mean over the seeds of a model, or None if one lacks it; the rows labeled per second are the mean
    over the runs that have labeled any. "p" is that of the paired comparison with the best model, None for that one.
    """
    tasks = []
    for name in sorted({entry.task.name for entry in entries}):
        own = [entry for entry in entries if entry.task.name == name]
        rows = _rows(own)
        tasks.append({"task": name, "metric": own[0].task.metric, "rows": rows, "papers": _papers(name, rows)})
    return {"tasks": tasks, "contradictions": list(CONTRADICTIONS), "warnings": warnings}


def _rows(entries: list[Entry]) -> list[Row]:
    """Return a row per model, the best one first."""
    rows = [(_row(name, group), group) for name, group in _groups(entries)]
    rows.sort(key=lambda pair: float("-inf") if pair[0]["metric"] is None else pair[0]["metric"], reverse=True)
    _, best = rows[0]
    return [{**row, "p": None if group is best else _p(group, best)} for row, group in rows]


def _groups(entries: list[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """Yield the runs of each model by its name, to which the settings are added that distinguish it from its like."""
    models: dict[str, dict[str, list[Entry]]] = {}
    for entry in sorted(entries, key=lambda entry: entry.seed):
        models.setdefault(entry.model, {}).setdefault(repr(sorted(entry.settings.items())), []).append(entry)
    for model, variants in models.items():
        settings = [group[0].settings for group in variants.values()]
        names = sorted({name for each in settings for name in each})
        apart = [name for name in names if len({repr(each.get(name)) for each in settings}) > 1]
        for group in variants.values():
            words = ", ".join(f"{name} {group[0].settings.get(name, 'default')}" for name in apart)
            yield (f"{model} ({words})" if words else model), group


def _row(name: str, group: list[Entry]) -> Row:
    return {
        "name": name,
        "model": group[0].model,
        "seeds": [entry.seed for entry in group],
        "runs": [entry.run for entry in group],
        **metric_of([entry.summary for entry in group], group[0].task.metric),
        "seconds": mean(entry.training.get("seconds") for entry in group),
        "training_rows_per_second": mean(entry.training.get("rows_per_second") for entry in group),
        "labeling_rows_per_second": mean(rate for entry in group if (rate := entry.rows_per_second) is not None),
        "size": mean(entry.size for entry in group),
        "memory": mean(entry.training.get("memory") for entry in group),
    }


def _p(group: list[Entry], best: list[Entry]) -> float | None:
    """Return the p-value of the first seed that both models share, or else of the first of each."""
    shared = {entry.seed for entry in group} & {entry.seed for entry in best}
    ours, theirs = (next(entry for entry in each if not shared or entry.seed == min(shared)) for each in (group, best))
    rows, labels, own = read_predictions(ours.predictions)
    other_rows, _, other = read_predictions(theirs.predictions)
    return compare(ours.task, labels, own, other).p if np.array_equal(rows, other_rows) else None


def _papers(task: str, rows: list[Row]) -> list[dict[str, Any]]:
    """Return the papers' figures for a task, each with the best of our rows that is of the same model, if any."""
    return [
        {**claim._asdict(), "ours": next((row for row in rows if Path(row["model"]).name in claim.like), None)}
        for claim in MODELS.get(task, ())
    ]
