"""Several runs side by side: how their experiments, their results, and their answers to the same dev rows differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import Any

from include.paired import of_answers, of_scores
from spark_bert.deployment.places import home
from spark_bert.web.panel.addresses import Page, Several
from spark_bert.web.panel.columns import DEFAULTS, METRIC, changed_fields, column
from spark_bert.web.panel.evaluation import dev_rows, page_of, read_evaluation
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import Record, is_number, read_record

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


@dataclass(frozen=True)
class Answers:
    """The answers of one model to the rows of its dev split, by row number."""

    rows: Mapping[int, Mapping[str, Any]]  # as dev_rows returns them; none if there was no evaluation
    split: frozenset[tuple[int, str]] = frozenset()  # row numbers and labels: equal ones are the same dev split
    right: frozenset[int] = frozenset()  # the rows whose label, or whose labels all, the model has right
    scores: Mapping[int, float] = field(default_factory=dict)  # the predictions of a regression


def compare(rows: Several) -> dict[str, Any]:
    """Return how runs differ, without their curves and rows. Numbers of runs are places in `runs`."""
    records = [read_record(row.run) for row in rows]
    answers = [_answers(str(home()), record.key("evaluate")) for record in records]
    same = _together(rows, answers)
    metrics = sorted({f"{METRIC}{name}" for row in rows for name in row.metrics})
    same_rows = len(same) == sum(bool(row.metrics) for row in rows)
    return {
        "runs": [_run(*each) for each in zip(rows, answers, strict=True)],
        "results": list(_results(rows, metrics, same_rows)),
        "fields": list(_fields(rows, records)),
        "together": same,
        "rows": len(answers[same[0]].rows) if same else 0,
        "scores": any(answers[at].scores for at in same),
        "pairs": [
            {"one": one, "other": other, **_pair(answers[one], answers[other])} for one, other in combinations(same, 2)
        ],
    }


def select_rows(rows: Several, only: str = "", page: Page = 1) -> dict[str, Any]:
    """Return a page of the dev rows that exactly one of the runs has right, and in `counts` how many each has right.

    In a regression, these are all rows, and a run is right if its prediction is the nearest to the label.
    """
    of_all = [_answers(str(home()), read_record(row.run).key("evaluate")) for row in rows]
    same = _together(rows, of_all)
    answers, names = [of_all[at] for at in same], [rows[at].run for at in same]
    winners = _winners(answers)
    shown = page_of([number for number, winner in winners.items() if only in ("", names[winner])], page)
    return {
        **shown,
        "together": same,
        "counts": [sum(winner == at for winner in winners.values()) for at in range(len(same))],
        "rows": [_row(answers, number) for number in shown["rows"]],
    }


def _run(row: Row, answers: Answers) -> dict[str, Any]:
    interval = read_evaluation(row).get("interval")
    known = isinstance(interval, list) and len(interval) == 2 and all(map(is_number, interval))
    values = {key: row.value(key) for key in ("metric", "score")}
    return {**row.about, **values, "interval": interval if known else None, "rows": len(answers.rows)}


def _results(rows: Sequence[Row], metrics: Sequence[str], same_rows: bool) -> Iterator[dict[str, Any]]:
    """Yield the results that some run has, with the places of the best. Metrics of other rows cannot be compared."""
    main = [f"{METRIC}{row.value('metric')}" for row in rows]
    for key in (*sorted(metrics, key=lambda key: key not in main), *_FACTS):
        values = [row.value(key) for row in rows]
        if any(one is not None for one in values):
            best = _best(key, values) if same_rows or key in _FACTS else []
            yield {**asdict(column(key)), "values": values, "best": best}


def _best(key: str, values: Sequence[Any]) -> list[int]:
    known = [one for one in values if is_number(one)]
    if key not in _HIGHER | _LOWER or len(known) < 2 or min(known) == max(known):
        return []
    best = max(known) if key in _HIGHER else min(known)
    return [at for at, one in enumerate(values) if one == best]


def _fields(rows: Sequence[Row], records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield the fields of the experiments that differ. A run that has no record yet has no fields."""
    fields = [
        DEFAULTS | changed_fields(record.experiment) if row.begun else {}
        for row, record in zip(rows, records, strict=True)
    ]
    for key in dict.fromkeys(key for one in fields for key in one):
        values = [one.get(key) for one in fields]
        begun = [one for one, row in zip(values, rows, strict=True) if row.begun]
        if any(one != begun[0] for one in begun):
            yield {"key": key, "values": values}


def _together(rows: Sequence[Row], answers: Sequence[Answers]) -> list[int]:
    """Return the places of the runs that were evaluated on the same rows: most of them, and at least two, or none."""
    groups: dict[Any, list[int]] = {}
    for at, (row, one) in enumerate(zip(rows, answers, strict=True)):
        if one.rows:
            groups.setdefault((str(row.value("data.task")), bool(one.scores), one.split), []).append(at)
    largest = max(groups.values(), key=len, default=[])
    return largest if len(largest) > 1 else []


def _pair(one: Answers, other: Answers) -> dict[str, Any]:
    """Return the difference of the shares of rows that are right, or of the Pearson correlations of scores."""
    if not one.scores:
        only_one, only_other = len(one.right - other.right), len(other.right - one.right)
        found = of_answers(only_one, only_other, len(one.rows))
        return {"only_one": only_one, "only_other": only_other, **asdict(found)}
    labels = [float(row["label"]) for row in one.rows.values()]
    difference = of_scores(labels, list(one.scores.values()), [other.scores[number] for number in one.scores])
    figures = asdict(difference) if difference else {"value": None, "interval": None, "p": None}
    return {"only_one": None, "only_other": None, **figures}


@lru_cache(maxsize=12)
def _answers(root: str, key: str) -> Answers:
    rows = {row["row"]: row for row in dev_rows(root, key)}
    split = frozenset((number, row["label"]) for number, row in rows.items())
    if not any(row["error"] is not None for row in rows.values()):
        return Answers(rows, split, frozenset(number for number, row in rows.items() if not row["wrong"]))
    with suppress(ValueError):
        scores = {number: float(row["prediction"]) for number, row in rows.items()}
        return Answers(rows, frozenset((number, str(float(label))) for number, label in split), scores=scores)
    return Answers({})


def _winners(answers: Sequence[Answers]) -> dict[int, int]:
    """Return the rows that exactly one model has right, in order, each with the place of that model."""
    if any(one.scores for one in answers):
        return _nearest(answers)
    others = [[other.right for other in (*answers[:at], *answers[at + 1 :])] for at in range(len(answers))]
    only = [one.right.difference(*rest) for one, rest in zip(answers, others, strict=True)]
    return dict(sorted((number, at) for at, rows in enumerate(only) for number in rows))


def _nearest(answers: Sequence[Answers]) -> dict[int, int]:
    """Return all rows, each with the place of the model whose score is nearest, those with the widest spread first."""
    scores = {number: [one.scores[number] for one in answers] for number in answers[0].rows}
    errors = {
        number: [abs(score - float(answers[0].rows[number]["label"])) for score in row]
        for number, row in scores.items()
    }
    by_spread = sorted(scores, key=lambda number: min(scores[number]) - max(scores[number]))
    return {number: errors[number].index(min(errors[number])) for number in by_spread}


def _row(answers: Sequence[Answers], number: int) -> dict[str, Any]:
    first = answers[0].rows[number]
    kept = ("prediction", "wrong", "confidence", "error")
    return {
        **{key: first[key] for key in ("row", "texts", "label")},
        "answers": [{key: one.rows[number][key] for key in kept} for one in answers],
    }
