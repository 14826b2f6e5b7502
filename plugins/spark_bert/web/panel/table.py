"""The table of runs: which runs and columns a query selects, and in which order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import HTTPException
from fastapi import Query as FromAddress
from pydantic import BaseModel

from spark_bert.web.panel.addresses import Page, Readable, Text
from spark_bert.web.panel.columns import SHOWN, choices, column
from spark_bert.web.panel.index import Row

MOST = 300  # columns that can be shown; there are fewer to choose from


class Query(BaseModel):
    """What a reader wants to see of the runs. An empty text selects all of them."""

    q: Text = ""  # words that the run's name, Dag, task, or encoder contain, all of them
    state: Text = ""
    dag: Text = ""
    task: Text = ""
    sort: Text = "-changed"  # the key of a column; with "-" before it, the largest comes first
    columns: Annotated[str, FromAddress(max_length=20_000)] = ""  # their keys, separated by commas
    page: Page = 1
    size: Annotated[int, FromAddress(ge=1, le=500)] = 50


def select_runs(rows: Readable, query: Annotated[Query, FromAddress()]) -> dict[str, Any]:
    """Return the page of the table that a query asks for, with everything that a reader can choose from."""
    keys = tuple(dict.fromkeys(filter(None, query.columns.split(",")))) or SHOWN
    if len(keys) > MOST:
        raise HTTPException(400, f"At most {MOST} columns can be shown, and this address names {len(keys)}.")
    found = [row for row in rows if _fits(row, query)]
    start = (query.page - 1) * query.size
    shown = _sorted(found, query.sort)[start : start + query.size]
    return {
        "columns": [asdict(column(key)) for key in keys],
        "rows": [
            {**row.about, "metric": row.value("metric"), "values": [row.value(key) for key in keys]} for row in shown
        ],
        "total": len(found),
        "all": len(rows),
        "running": sum(row.state == "running" for row in rows),
        "page": query.page,
        "size": query.size,
        "sort": query.sort,
        "states": _distinct(row.state for row in rows),
        "dags": _distinct(row.dag_id for row in rows),
        "tasks": _distinct(map(_task, rows)),
        "choices": [asdict(one) for one in choices({name for row in rows for name in row.metrics})],
    }


def _task(row: Row) -> str:
    return str(row.value("data.task") or "")


def _fits(row: Row, query: Query) -> bool:
    if query.state and row.state != query.state:
        return False
    if query.dag and row.dag_id != query.dag:
        return False
    if query.task and _task(row) != query.task:
        return False
    if not query.q:
        return True
    text = f"{row.run} {row.dag_id} {row.run_id} {row.value('data.task')} {row.value('model.name')}".lower()
    return all(word in text for word in query.q.lower().split())


def _sorted(rows: Iterable[Row], sort: str) -> list[Row]:
    """Return the rows in the order of a column, equal ones the newest first. What is not known comes last."""
    key = sort.removeprefix("-")
    newest = sorted(rows, key=lambda row: -row.changed)
    if sort == "-changed":
        return newest
    values = [(row.value(key), row) for row in newest]
    known = [pair for pair in values if pair[0] is not None]
    try:
        known.sort(key=lambda pair: pair[0], reverse=sort.startswith("-"))
    except TypeError:  # numbers and texts
        known.sort(key=lambda pair: str(pair[0]), reverse=sort.startswith("-"))
    return [row for _, row in [*known, *(pair for pair in values if pair[0] is None)]]


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted({value for value in values if value})
