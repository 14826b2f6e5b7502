"""What the address of a route can name: texts, pages, and runs, of which a user sees only those they may read."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, HTTPException, Query

from spark_bert.deployment.places import indexed, run_folder
from spark_bert.web.access import MayRead, may_read
from spark_bert.web.panel.index import INDEX, Row

_FEWEST, _MOST = 2, 6  # runs that can be compared
May = Annotated[MayRead, Depends(may_read)]
#: What a reader types or chooses. One request must not keep the server busy for others.
Text = Annotated[str, Query(max_length=200)]
Page = Annotated[int, Query(ge=1, le=1_000_000)]


def chosen(may: May, run: str = "", dag_id: str = "", run_id: str = "", map_index: str = "") -> Row:
    """Return the run that the address names, by its folder or its ids in Airflow; 404 if the user may not read it."""
    index = int(map_index) if map_index.isdecimal() else -1  # Airflow leaves {MAP_INDEX} where no task is mapped
    # An index of a mapped task that has no run of its own works in that of its Dag run.
    names = [run] if run else [run_folder(dag_id, name).name for name in (indexed(run_id, index), run_id)]
    row = next(filter(None, map(INDEX.find, names)), None)
    if row is None or not may(row.dag_id):
        raise HTTPException(404, "There is no such run, or you may not read its Dag.")
    return row


def readable(may: May) -> list[Row]:
    """Return the runs that the user may read."""
    return [row for row in INDEX.rows() if may(row.dag_id)]


def several(may: May, run: Annotated[tuple[str, ...], Query()] = ()) -> list[Row]:
    """Return the runs that the address names, by their folders; 404 if the user may not read one of them."""
    names = tuple(dict.fromkeys(run))
    if not _FEWEST <= len(names) <= _MOST:
        wanted = f"{_FEWEST} to {_MOST}"
        raise HTTPException(400, f"{wanted} different runs can be compared, and this address names {len(names)}.")
    return [chosen(may, name) for name in names]


Chosen = Annotated[Row, Depends(chosen)]
Readable = Annotated[list[Row], Depends(readable)]
Several = Annotated[list[Row], Depends(several)]
