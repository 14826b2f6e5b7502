"""The columns of the table of runs, and which runs and columns a query selects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spark_bert.web.panel.index import DEFAULTS, METRIC, Row

#: The columns that are shown unless a query names others.
DEFAULT = (
    "state",
    "run",
    "dag_id",
    "data.task",
    "model.name",
    "score",
    "metric",
    "gate",
    "rows_per_second",
    "seconds",
    "changed",
)
PAGE = 50  # rows
#: The most columns that can be shown. There are fewer to choose from.
MOST = 300
_TITLES = {"data.task": "Task", "model.name": "Encoder"}


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        key: its name in addresses.
        title: its heading.
        kind: how its values are written: text, state, run, passed, number, share, score, bytes, seconds or time.
    """

    key: str
    title: str
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
_BY_KEY = {
    **{column.key: column for column in _OWN},
    **{key: Column(key, _TITLES.get(key, key), "value") for key in DEFAULTS},
}


@dataclass(frozen=True)
class Query:
    """What a reader wants to see of the runs.

    Attributes:
        q: words that the run's name, Dag, task, or encoder contain, all of them.
        state: a state of runs; "" for all.
        dag: a Dag; "" for all.
        task: a task of experiments; "" for all.
        sort: the key of a column; with "-" before it, the largest comes first.
        columns: the keys of the columns.
        page: which part of the runs, from 1.
        size: how many runs a page has.
    """

    q: str = ""
    state: str = ""
    dag: str = ""
    task: str = ""
    sort: str = "-changed"
    columns: Sequence[str] = DEFAULT
    page: int = 1
    size: int = PAGE


def answer(rows: Collection[Row], query: Query) -> dict[str, Any]:
    """Return the page of the table that a query asks for, as JSON, with everything that a reader can choose from."""
    found = [row for row in rows if _fits(row, query)]
    ordered = _sorted(found, query.sort)
    start = (query.page - 1) * query.size
    columns = [column(key) for key in query.columns]
    return {
        "columns": [asdict(one) for one in columns],
        "rows": [_shown(row, columns) for row in ordered[start : start + query.size]],
        "total": len(found),
        "all": len(rows),
        "running": sum(row.state == "running" for row in rows),
        "page": query.page,
        "size": query.size,
        "sort": query.sort,
        "states": _distinct({row.state for row in rows}),
        "dags": _distinct({row.dag_id for row in rows}),
        "tasks": _distinct({_task(row) for row in rows}),
        "choices": [asdict(one) for one in _choices(rows)],
    }


def _shown(row: Row, columns: Iterable[Column]) -> dict[str, Any]:
    about = {key: value(row, key) for key in ("run", "dag_id", "run_id", "state", "metric")}
    return {**about, "values": [value(row, one.key) for one in columns]}


def column(key: str) -> Column:
    """Return the column with the key. A metric or field that this version does not know is a column too."""
    return _BY_KEY.get(key) or Column(key, key.removeprefix(METRIC), "score" if key.startswith(METRIC) else "value")


def value(row: Row, key: str) -> Any:
    """Return the value of a column in a row. Fields that the run leaves at their defaults have those."""
    found = row.value(key)
    return DEFAULTS.get(key) if found is None and row.begun else found


def _task(row: Row) -> str:
    return str(value(row, "data.task") or "")


def _fits(row: Row, query: Query) -> bool:
    if query.state and row.state != query.state:
        return False
    if query.dag and row.dag_id != query.dag:
        return False
    if query.task and _task(row) != query.task:
        return False
    if not query.q:
        return True
    text = f"{row.run} {row.dag_id} {row.run_id} {value(row, 'data.task')} {value(row, 'model.name')}".lower()
    return all(word in text for word in query.q.lower().split())


def _sorted(rows: Iterable[Row], sort: str) -> list[Row]:
    """Return the rows in the order of a column, equal ones the newest first. What is not known comes last."""
    key = sort.removeprefix("-")
    newest = sorted(rows, key=lambda row: -row.changed)
    if sort == "-changed":
        return newest
    values = [(value(row, key), row) for row in newest]
    known = [pair for pair in values if pair[0] is not None]
    try:
        known.sort(key=lambda pair: pair[0], reverse=sort.startswith("-"))
    except TypeError:  # numbers and texts
        known.sort(key=lambda pair: str(pair[0]), reverse=sort.startswith("-"))
    return [row for _, row in [*known, *(pair for pair in values if pair[0] is None)]]


def _distinct(values: Iterable[Any]) -> list[str]:
    return sorted({str(value) for value in values if value})


def _choices(rows: Iterable[Row]) -> list[Column]:
    """Return all columns to choose from: the own ones, the metrics that some run has, and the fields."""
    metrics = sorted(f"{METRIC}{name}" for name in set[str]().union(*(row.metrics for row in rows)))
    return [*_OWN, *map(column, metrics), *(_BY_KEY[key] for key in DEFAULTS)]
