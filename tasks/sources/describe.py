"""Find out from the user's own files what a model has to learn: the kind of task, and its labels or its scores."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from include.experiment import Experiment
from include.fields.data import Data
from include.glue import AUTO, TASKS
from include.named_experiments import changed
from include.stages import BadInput
from include.text import is_blank
from tasks.sources import open_source
from tasks.sources.files import OwnFiles
from tasks.sources.labels import as_list, labels_in, listed, map_hint, number, spellings

log = logging.getLogger(__name__)

_FEW = 20  # different values that may be classes, however few rows there are
_NUMBERS = 0.95  # share of the rows with numbers, from which on others are errors


def describe(experiment: Experiment) -> Experiment:
    """Return the experiment with data.task, data.labels and data.score_range as train and dev have them."""
    data = experiment.data
    source = open_source(experiment.model_copy(update={"data": data.model_copy(update={"label_map": {}})}))
    assert isinstance(source, OwnFiles)  # the others have tasks whose labels are known
    flags, written = source.has_flags(), Counter(record.label for record in source.labeled() if not record.problem)
    cells = {cell: rows for cell, rows in _labels(data, written, several=False).items() if not is_blank(cell)}
    where = f"the column {source.names['label']!r} of {source.file('train')}"
    task = data.task if data.task != AUTO else "multi-label" if flags else _kind(data, cells, where)
    found: dict[str, Any] = {"data.task": task}
    if TASKS[task].kind == "regression":
        found["data.score_range"] = data.score_range or _score_range(cells, where)
        log.info("%s has scores from %g to %g", where, *found["data.score_range"])
    else:
        if data.task == AUTO and (numbers := _numbers(cells)):
            cells = numbers
        counts = _labels(data, written, several=True) if TASKS[task].kind == "multilabel" else cells
        found["data.labels"] = data.labels or _names(counts, where)
        log.info("%s, %s: %s", where, task, listed(counts))
    return changed(experiment, found, "the experiment")


def _kind(data: Data, cells: Mapping[str, int], where: str) -> str:
    rows = sum(cells.values())
    if any(map(_is_list, cells)):
        return "multi-label"
    if data.score_range or data.labels:
        return "regression" if data.score_range else "classification"
    if numbers := _numbers(cells):
        return _kind_of_numbers(numbers, where)
    if any(data.label_separator in cell for cell in cells) and len(_labels(data, cells, several=True)) < len(cells):
        raise BadInput(
            f"{where} has {listed(cells)}: write data.task: multi-label if {data.label_separator!r} separates labels, "
            "or data.task: classification if it does not"
        )
    if len(cells) > _FEW and len(cells) * 5 > rows:
        raise BadInput(
            f"{where} has {len(cells):,} different values in {rows:,} rows, such as {listed(cells)}, which seem to be "
            "texts and not labels: name the column with the labels in data.columns (LABEL), or write "
            "data.task: classification"
        )
    return "classification"


def _numbers(cells: Mapping[str, int]) -> dict[str, int]:
    """Return the cells with numbers; none if too many others remain for them to be errors."""
    numbers = {cell: rows for cell, rows in cells.items() if _is_finite(cell)}
    return numbers if sum(numbers.values()) >= _NUMBERS * sum(cells.values()) else {}


def _kind_of_numbers(numbers: Mapping[str, int], where: str) -> str:
    values = sorted({float(cell) for cell in numbers})
    most_differ = len(values) > _FEW and len(values) * 2 > sum(numbers.values())  # no class has so few rows
    if most_differ or not all(value.is_integer() for value in values):
        return "regression"
    if len(values) <= 2:
        return "classification"
    shown = ", ".join(f"{value:g}" for value in values[:_FEW])
    shown += f" and {len(values) - _FEW} more" if len(values) > _FEW else ""
    raise BadInput(
        f"{where} has the whole numbers {shown}: are they classes or scores? Write data.task: classification or "
        "data.task: regression"
    )


def _labels(data: Data, cells: Mapping[str, int], several: bool) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for cell, rows in cells.items():
        with suppress(ValueError):  # a list without commas, which is quarantined
            for label in labels_in(cell, data.label_separator) if several else [cell]:
                counts[data.label_map.get(label, label)] += rows
    return counts


def _is_list(cell: str) -> bool:
    try:
        return as_list(cell) is not None
    except ValueError:
        return True


def _names(counts: Mapping[str, int], where: str) -> tuple[str, ...]:
    if len(counts) < 2:
        raise BadInput(f"{where} has {listed(counts) or 'no labels'}: a model needs at least two labels to learn from")
    if alike := spellings(counts, ()):
        both = {label: counts[label] for label in (*alike, *alike.values())}
        raise BadInput(
            f"{where} has labels that differ only in case, blanks, or the form of a number: {listed(both)}. If they "
            f"are the same, write {map_hint(alike)}; if not, list all labels in data.labels"
        )
    return tuple(sorted(counts, key=float) if all(map(_is_finite, counts)) else sorted(counts))


def _score_range(cells: Mapping[str, int], where: str) -> tuple[float, float]:
    scores = {float(cell) for cell in cells if _is_finite(cell)}
    if len(scores) < 2:
        raise BadInput(
            f"{where} has {listed(cells) or 'no values'}: a regression needs different numbers to learn from"
        )
    return min(scores), max(scores)


def _is_finite(cell: str) -> bool:
    value = number(cell)
    return value is not None and math.isfinite(value)
