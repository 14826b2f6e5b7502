"""The rules of the data section, most of which are about the user's own files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from include.answers import reserved
from include.glue import AUTO, GENERIC, TASKS, Task
from include.sections import Data

#: How the names of the user's files may end.
FORMATS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")


def file_names(data: Data, split: str) -> list[str]:
    """Return the names that the file of a split may have, below data.path. A default name stands for all formats."""
    name: str = getattr(data, split)
    if name != Data.model_fields[split].default:
        return [name]
    return [name, *(other for suffix in FORMATS if (other := f"{split}{suffix}") != name)]


def data_problems(data: Data) -> Iterator[str]:
    """Yield every contradiction in the data section, with what to write instead."""
    rules = (_source_fits_task, _labels_fit_task, _labels_can_be_separated, _files_only, _kept_columns_fit)
    return chain.from_iterable(rule(data) for rule in rules)


def is_described(data: Data) -> bool:
    """Return whether the section says what a model has to learn: the kind of task, and its labels or its scores.

    If it does not, the stage validate finds it out from the label column.
    """
    if data.task not in GENERIC:
        return True
    kind = TASKS[data.task].kind
    return data.task != AUTO and bool(data.score_range if kind == "regression" else data.labels)


def _source_fits_task(data: Data) -> Iterator[str]:
    sources, source = _sources(TASKS[data.task]), _source(data)
    if data.source not in sources:
        yield (
            f"data.task {data.task} is not available from data.source {data.source}: "
            f"write data.source: {_any_of(sources)}"
        )
    if source in ("glue", "files") and not data.path:
        what = "the folder that holds the files" + (", or the one file with all rows" if source == "files" else "")
        yield f"data.source {source} needs data.path: write {what}"


def _labels_fit_task(data: Data) -> Iterator[str]:
    if data.task in ("classification", "multi-label") and len(data.labels) == 1:
        other = {
            "classification": 'write, for example, ["no", "yes"], or none, and they are taken from the label column',
            "multi-label": 'write, for example, ["acting", "plot"], or data.task: classification if there is a single '
            "label that a row has or has not",
        }
        yield f"data.task {data.task} needs two or more data.labels: {other[data.task]}"
    if data.score_range and data.score_range[0] >= data.score_range[1]:
        low, high = data.score_range
        why = (
            f"is reversed: write [{high:g}, {low:g}]" if low > high else "is empty: write the lowest and highest score"
        )
        yield f"data.score_range [{low:g}, {high:g}] {why}"
    if data.task not in GENERIC and (data.labels or data.score_range):
        yield (
            f"data.task {data.task} has its own labels: remove data.labels and data.score_range, "
            f"or write data.task: {_any_of(GENERIC)}"
        )


def _labels_can_be_separated(data: Data) -> Iterator[str]:
    if TASKS[data.task].kind != "multilabel":
        return
    for label in data.labels:
        if data.label_separator in label or label != label.strip():
            yield (
                f"the label {label!r} contains data.label_separator {data.label_separator!r}, or begins or ends with "
                "white space, so it cannot be found in a cell with several labels: rename it here and in the files, "
                "or use another separator"
            )


def _files_only(data: Data) -> Iterator[str]:
    source = _source(data)
    if source in ("files", ""):
        return
    for name in ("columns", "label_map", "delimiter", "encoding", "keep"):
        if getattr(data, name) != Data().model_dump()[name]:
            yield f"data.{name} works only with data.source files, not with {source}: remove data.{name}"


def _kept_columns_fit(data: Data) -> Iterator[str]:
    for at, name in enumerate(data.keep):
        if name.casefold() in [other.casefold() for other in data.keep[:at]]:
            yield f"data.keep names {name!r} twice (case is ignored, as Spark does): name it once, or rename it"
        if reserved(name):
            yield f"data.keep names {name!r}, but the predictions have a column of that name: rename it in your file"


def _source(data: Data) -> str:
    """Return the source that fits the task: that of the section, else the only one there is, else none ("")."""
    sources = _sources(TASKS[data.task])
    if data.source in sources:
        return data.source
    return sources[0] if len(sources) == 1 else ""


def _sources(task: Task) -> tuple[str, ...]:
    """Return the values of data.source from which the task is available."""
    if task.name in GENERIC:
        return ("files",)
    if task.name == "movie-reviews":
        return ("bundled", "files")
    return ("glue", "files") if task.hub is None else ("glue", "hub", "files")


def _any_of(values: Sequence[str]) -> str:
    """Return "a", "a or b", "a, b or c" and so on."""
    *first, last = values
    return f"{', '.join(first)} or {last}" if first else last
