"""The JSON of the panel. Every route only reads, and shows a user only the runs of Dags that they may read."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException
from fastapi import Query as FromAddress
from fastapi.responses import JSONResponse

from spark_bert.deployment.places import indexed, run_folder
from spark_bert.web.access import MayRead, may_read
from spark_bert.web.panel import champions, compare, datasets, evaluation, leaderboards, run_page, table, trace
from spark_bert.web.panel.columns import SHOWN
from spark_bert.web.panel.index import INDEX, Row
from spark_bert.web.panel.records import read_record


class _Finite(JSONResponse):
    """JSON in which infinite numbers and NaN, which stages may write, are null."""

    def render(self, content: Any) -> bytes:
        """Return the content as JSON."""
        try:
            return super().render(content)
        except ValueError:  # looking at every number of every answer would take longer
            return super().render(_finite(content))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_finite, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


router = APIRouter(prefix="/api", default_response_class=_Finite)
#: What a reader types or chooses. One request must not keep the server busy for others.
_Text = Annotated[str, FromAddress(max_length=200)]
_Page = Annotated[int, FromAddress(ge=1, le=1_000_000)]
_Size = Annotated[int, FromAddress(ge=1, le=500)]


def chosen(
    may: Annotated[MayRead, Depends(may_read)], run: str = "", dag_id: str = "", run_id: str = "", map_index: str = ""
) -> Row:
    """Return the run that the address names, by its folder or by its ids in Airflow.

    Answer 404 if there is none that the user may read, without saying whether it exists.
    """
    index = int(map_index) if map_index.isdecimal() else -1  # Airflow leaves {MAP_INDEX} where no task is mapped
    row = INDEX.find(run or run_folder(dag_id, indexed(run_id, index)).name)
    if row is None or not may(row.dag_id):
        raise HTTPException(404, "There is no such run, or you may not read its Dag.")
    return row


def readable(may: Annotated[MayRead, Depends(may_read)]) -> list[Row]:
    """Return the runs that the user may read."""
    return [row for row in INDEX.rows() if may(row.dag_id)]


Chosen = Annotated[Row, Depends(chosen)]
Readable = Annotated[list[Row], Depends(readable)]


def several(
    may: Annotated[MayRead, Depends(may_read)], run: Annotated[tuple[str, ...], FromAddress()] = ()
) -> list[Row]:
    """Return the runs that the address names, by their folders; 404 if the user may not read one of them."""
    names = tuple(dict.fromkeys(run))
    if not compare.FEWEST <= len(names) <= compare.MOST:
        wanted = f"{compare.FEWEST} to {compare.MOST}"
        raise HTTPException(400, f"{wanted} different runs can be compared, and this address names {len(names)}.")
    return [chosen(may, name) for name in names]


Several = Annotated[list[Row], Depends(several)]


@router.get("/runs")
def runs(
    rows: Readable,
    q: _Text = "",
    state: _Text = "",
    dag: _Text = "",
    task: _Text = "",
    sort: _Text = "-changed",
    columns: Annotated[str, FromAddress(max_length=20_000)] = "",
    page: _Page = 1,
    size: _Size = table.PAGE,
) -> dict[str, Any]:
    """Return a page of the table of runs."""
    keys = tuple(dict.fromkeys(filter(None, columns.split(",")))) or SHOWN
    if len(keys) > table.MOST:
        raise HTTPException(400, f"At most {table.MOST} columns can be shown, and this address names {len(keys)}.")
    return table.select_runs(rows, table.Query(q, state, dag, task, sort, keys, page, size))


@router.get("/run")
def run(row: Chosen) -> dict[str, Any]:
    """Return what the page of a run shows, without its curves and its evaluation."""
    return run_page.describe(row)


@router.get("/curves")
def run_curves(row: Chosen, source: str = "", offset: Annotated[int, FromAddress(ge=0)] = 0) -> dict[str, Any]:
    """Return what a training has written since the reader last asked."""
    return run_page.read_curves(row, source, offset)


@router.get("/trace")
def run_trace(row: Chosen) -> dict[str, Any]:
    """Return the spans that the stages have written so far."""
    return trace.read_trace(row.run)


@router.get("/evaluation")
def run_evaluation(row: Chosen) -> dict[str, Any]:
    """Return the figures of the evaluation, {} if the run has none."""
    return evaluation.read_evaluation(read_record(row.run))


@router.get("/rows")
def run_rows(
    row: Chosen,
    q: _Text = "",
    label: _Text = "",
    prediction: _Text = "",
    slice_: Annotated[str, FromAddress(alias="slice", max_length=200)] = "",
    wrong: bool = False,
    page: _Page = 1,
) -> dict[str, Any]:
    """Return dev rows with their texts, labels and predictions."""
    query = {"q": q, "label": label, "prediction": prediction, "slice": slice_}
    return evaluation.select_rows(read_record(row.run), query, wrong, page)


@router.get("/models")
def models(rows: Readable, model: str = "") -> dict[str, Any]:
    """Return the champion and the history of each registered model."""
    return champions.describe(rows, model)


@router.get("/leaderboards")
def newest_leaderboards(rows: Readable, run: str = "") -> dict[str, Any]:
    """Return the leaderboard of each task: the one that a run has made, or the newest."""
    return leaderboards.describe(rows, run)


@router.get("/data")
def data(
    rows: Readable, may: Annotated[MayRead, Depends(may_read)], dataset: str = "", stream: str = ""
) -> dict[str, Any]:
    """Return the versions of the datasets and the windows of the streams."""
    return datasets.describe(rows, may(""), dataset, stream)


@router.get("/compare")
def runs_compared(rows: Several) -> dict[str, Any]:
    """Return how several runs differ, without their curves."""
    return compare.compare(rows)


@router.get("/compared-rows")
def rows_compared(rows: Several, only: str = "", page: _Page = 1) -> dict[str, Any]:
    """Return the dev rows that only one of several runs has right."""
    return compare.select_rows(rows, only, page)
