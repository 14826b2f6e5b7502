"""The answers of several models to the same dev rows: paired tests, and the rows that only one of them has right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from include.paired import of_answers, of_scores
from spark_bert.deployment.places import home
from spark_bert.web.panel.columns import value
from spark_bert.web.panel.evaluation import PAGE, dev_rows
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import artifact_key, read_record


@dataclass(frozen=True)
class Answers:
    """The answers of one model to the rows of its dev split.

    Attributes:
        rows: the rows by their number, as evaluation.dev_rows returns them; none if there was no evaluation.
        split: the number and the label of each row. Equal ones are the same dev split.
        right: the numbers of the rows whose label, or whose labels all, the model has right.
        scores: the predicted scores of a regression by row number; none if the labels are no scores.
    """

    rows: Mapping[int, Mapping[str, Any]]
    split: frozenset[tuple[int, str]] = frozenset()
    right: frozenset[int] = frozenset()
    scores: Mapping[int, float] = field(default_factory=dict)


def of_record(record: Mapping[str, Any]) -> Answers:
    """Return the answers of the model that a run has evaluated."""
    return _answers(str(home()), artifact_key(record, "evaluate"))


def together(rows: Sequence[Row], answers: Sequence[Answers]) -> list[int]:
    """Return the places of the runs that were evaluated on the same rows: most of them, and at least two, or none."""
    groups: dict[Any, list[int]] = {}
    for at, (row, one) in enumerate(zip(rows, answers, strict=True)):
        if one.rows:
            groups.setdefault((str(value(row, "data.task")), bool(one.scores), one.split), []).append(at)
    largest = max(groups.values(), key=len, default=[])
    return largest if len(largest) > 1 else []


def pair(one: Answers, other: Answers) -> dict[str, Any]:
    """Return the paired comparison of two models on the same rows, as JSON.

    Returns:
        The difference of the shares of rows that are right (or of the Pearson correlations of scores) as `value`, its
        95 % `interval`, and `p`, all None if it is undefined; and the numbers of rows that only one has right, which
        are None for scores.
    """
    if not one.scores:
        only_one, only_other = len(one.right - other.right), len(other.right - one.right)
        found = of_answers(only_one, only_other, len(one.rows))
        return {"only_one": only_one, "only_other": only_other, **asdict(found)}
    labels = [float(row["label"]) for row in one.rows.values()]
    difference = of_scores(labels, list(one.scores.values()), [other.scores[number] for number in one.scores])
    figures = asdict(difference) if difference else {"value": None, "interval": None, "p": None}
    return {"only_one": None, "only_other": None, **figures}


def select_rows(rows: Sequence[Row], only: str, page: int) -> dict[str, Any]:
    """Return a page of the dev rows that exactly one of the runs has right.

    Nobody has a score quite right. Of a regression these are all rows, those first whose predictions lie furthest
    apart, and instead of being right, a run's prediction is nearest to the label.

    Args:
        rows: the runs. Only those that have been evaluated on the same rows count.
        only: the name of the run that has the rows right; "" for any of them.
        page: the page, from 1.

    Returns:
        The rows, each with the text that the first of the runs has read, and in `counts` how many each run has right.
    """
    everybody = [of_record(read_record(row.run)) for row in rows]
    same = together(rows, everybody)
    answers, names = [everybody[at] for at in same], [rows[at].run for at in same]
    winners = _winners(answers)
    found = [number for number, winner in winners.items() if only in ("", names[winner])]
    start = (page - 1) * PAGE
    return {
        "together": same,
        "counts": [sum(winner == at for winner in winners.values()) for at in range(len(same))],
        "rows": [_row(answers, number) for number in found[start : start + PAGE]],
        "total": len(found),
        "page": page,
        "size": PAGE,
    }


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
