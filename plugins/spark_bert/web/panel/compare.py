"""Several runs side by side: how their experiments, their results, and their answers to the same dev rows differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

from spark_bert.web.panel.answers import Answers, of_record, pair, together
from spark_bert.web.panel.columns import column, value
from spark_bert.web.panel.evaluation import read_evaluation
from spark_bert.web.panel.index import DEFAULTS, METRIC, Row, changed_fields
from spark_bert.web.panel.records import read_record
from spark_bert.web.panel.stages import is_number

#: How many runs can be compared.
FEWEST, MOST = 2, 6
#: The results that are shown besides the metrics, as columns of the table of runs.
_FACTS = ("gate", "train_seconds", "rows_per_second", "memory", "padding_share", "steps", "device", "seconds")
#: Results of which the largest is the best, and of which the smallest is. The time of a whole run is in neither,
#: because a run that found artifacts takes less.
_HIGHER = {
    "rows_per_second",
    *(f"{METRIC}{name}" for name in ("accuracy", "precision", "recall", "f1", "matthews", "pearson", "spearman", "r2")),
    *(f"{METRIC}{name}" for name in ("f1_micro", "f1_macro", "subset_accuracy")),
}
_LOWER = {
    "train_seconds",
    "memory",
    "padding_share",
    *(f"{METRIC}{name}" for name in ("mse", "rmse", "mae", "hamming_loss")),
}


def compare(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how runs differ, without their curves and rows, as JSON. Numbers of runs are places in `runs`."""
    records = [read_record(row.run) for row in rows]
    answers = [of_record(record) for record in records]
    same = together(rows, answers)
    metrics = sorted({f"{METRIC}{name}" for row in rows for name in row.metrics})
    same_rows = len(same) == sum(bool(row.metrics) for row in rows)
    return {
        "runs": [_run(*each) for each in zip(rows, records, answers, strict=True)],
        "results": list(_results(rows, metrics, same_rows)),
        "fields": list(_fields(rows, records)),
        "together": same,
        "rows": len(answers[same[0]].rows) if same else 0,
        "scores": any(answers[at].scores for at in same),
        "pairs": [
            {"one": one, "other": other, **pair(answers[one], answers[other])} for one, other in combinations(same, 2)
        ],
    }


def _run(row: Row, record: Mapping[str, Any], answers: Answers) -> dict[str, Any]:
    about = {key: value(row, key) for key in ("run", "dag_id", "run_id", "state", "metric", "score")}
    interval = read_evaluation(record).get("interval")
    known = isinstance(interval, list) and len(interval) == 2 and all(map(is_number, interval))
    return {**about, "interval": interval if known else None, "rows": len(answers.rows)}


def _results(rows: Sequence[Row], metrics: Sequence[str], same_rows: bool) -> Iterator[dict[str, Any]]:
    """Yield the results that some run has, with the places of the best. Metrics of other rows cannot be compared."""
    main = [f"{METRIC}{row.value('metric')}" for row in rows]
    for key in (*sorted(metrics, key=lambda key: key not in main), *_FACTS):
        values = [value(row, key) for row in rows]
        if any(one is not None for one in values):
            best = _best(key, values) if same_rows or key in _FACTS else []
            yield {**asdict(column(key)), "values": values, "best": best}


def _best(key: str, values: Sequence[Any]) -> list[int]:
    """Return the places of the best values; [] if it is not known which are better, or if none is."""
    known = [one for one in values if is_number(one)]
    if key not in _HIGHER | _LOWER or len(known) < 2 or min(known) == max(known):
        return []
    best = max(known) if key in _HIGHER else min(known)
    return [at for at, one in enumerate(values) if one == best]


def _fields(rows: Sequence[Row], records: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the fields of the experiments that differ. A run that has no record yet has no fields."""
    fields = [DEFAULTS | changed_fields(record) if row.begun else {} for row, record in zip(rows, records, strict=True)]
    for key in dict.fromkeys(key for one in fields for key in one):
        values = [one.get(key) for one in fields]
        begun = [one for one, row in zip(values, rows, strict=True) if row.begun]
        if any(one != begun[0] for one in begun):
            yield {"key": key, "values": values}
