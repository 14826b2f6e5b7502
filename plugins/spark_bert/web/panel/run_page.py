"""What the page of a run shows: its stages over time, its experiment and results, its files, and its curves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, BinaryIO

from fastapi import Query

from include.folders import open_file
from include.stages import STAGES
from spark_bert.deployment.places import home
from spark_bert.web.links import LINKS
from spark_bert.web.panel import dag_runs, records
from spark_bert.web.panel.addresses import Chosen
from spark_bert.web.panel.columns import changed_fields, column
from spark_bert.web.panel.dag_runs import TaskState
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import Entry, Record, read_at_work, read_record

#: The facts at the top of the page, as columns of the table.
_FACTS = ("gate", "rows_per_second", "seconds", "steps", "memory")
#: What the run is about, below its name.
_ABOUT = ("data.task", "model.name", "device")
#: The stages that write curves, the most interesting one first.
_CURVED = ("train", "pretrain")
_MOST = 1 << 20  # bytes of curves in one answer


def describe(row: Chosen) -> dict[str, Any]:
    """Return everything about a run except for its curves and its evaluation."""
    record = read_record(row.run)
    return {
        **row.about,
        "changed": row.changed,
        "metric": row.value("metric"),
        "score": row.value("score"),
        "about": [str(row.value(key)) for key in _ABOUT if row.value(key)],
        "facts": [asdict(column(key)) | {"value": row.value(key)} for key in _FACTS if row.value(key) is not None],
        "fields": changed_fields(record.experiment),
        "stages": _stages(row, record),
        "files": list(list_files(row, record)),
        "evaluation": record.key("evaluate"),
    }


def _stages(row: Row, record: Record) -> list[dict[str, Any]]:
    """Return each stage of the run, in the order in which they began. Those that have not begun come last."""
    tasks = dag_runs.task_states(row.dag_id, row.run_id) if row.dag_id else {}
    work = read_at_work(row.run) if row.state == "running" else {}
    found = [
        {
            "stage": stage,
            "does": STAGES[stage].does,
            **_stage(record.stages.get(stage), tasks.get(stage), work.get(stage)),
        }
        for stage in STAGES
        if stage in record.stages or stage in tasks or stage in work
    ]
    began, last = {}, -math.inf
    for one in found:
        last = last if one["started"] is None else one["started"]
        began[one["stage"]] = math.inf if one["state"] in ("waiting", "skipped") else last
    return sorted(found, key=lambda one: began[one["stage"]])


def _stage(entry: Entry | None, task: TaskState | None, work: dict[str, Any] | None) -> dict[str, Any]:
    """Return what is known of one stage, from its entry in the record, Airflow's task, and its work under way."""
    if task and task.state == "running" and work is None:
        work = {}  # the task has started, but the stage's process has not, or it does not record its work
    if work is not None and (task is None or task.state == "running"):
        since = records.seconds_since_1970(work.get("since")) or (task and task.started)
        return {"state": "running", "started": since, "ended": None, "planned_steps": work.get("planned_steps")}
    if entry is None:
        unmade = {"skipped": "skipped", "upstream_failed": "skipped", "failed": "failed", "removed": "skipped"}
        return {"state": unmade.get(task.state if task else "", "waiting"), "started": None, "ended": None}
    of_task = task if task and entry.ended is None else None
    return {
        "state": records.state_of(entry.outcome),
        "started": of_task.started if of_task else entry.started,
        "ended": of_task.ended if of_task else entry.ended,
        "seconds": entry.result.get("seconds"),
        "reused": entry.reused,
        "message": entry.message,
        "tries": task.tries if task else 1,
    }


def list_files(row: Row, record: Record) -> Iterator[dict[str, str]]:
    """Yield the files of a run that Airflow has buttons for: their titles, stages, and addresses."""
    for stage in STAGES:
        for link in LINKS.get(stage, ()) if stage in record.stages else ():
            if href := row.href(stage, record.stages[stage], link.file):
                yield {"title": link.name, "stage": stage, "href": href}


def read_curves(row: Chosen, source: str = "", offset: Annotated[int, Query(ge=0)] = 0) -> dict[str, Any]:
    """Return the lines that a training has written after the `offset` bytes of the `source` that the reader has.

    It has to forget its lines (`again`) if the source is another one, or became shorter because training was resumed.
    """
    for stage, found, file in _sources(row):
        with file:
            again = source != found or file.seek(0, 2) < offset
            start = 0 if again else offset
            file.seek(start)
            text = file.read(_MOST)
        whole = text[: text.rfind(b"\n") + 1]  # a line that is being written comes next time
        lines = list[dict[str, Any]]()
        for line in whole.splitlines():
            with suppress(ValueError, RecursionError):
                if content := records.mapping(records.parse(line)):
                    lines.append(content)
        more = len(text) == _MOST
        end = start + len(whole)
        return {"source": found, "stage": stage, "again": again, "lines": lines, "offset": end, "more": more}
    return {"source": "", "stage": "", "again": bool(source), "lines": [], "offset": 0, "more": False}


def _sources(row: Row) -> Iterator[tuple[str, str, BinaryIO]]:
    """Yield the stage, the name, and the open file of each place with curves, the one that is being written first."""
    record = read_record(row.run)
    work = read_at_work(row.run) if row.state == "running" else {}
    for stage in _CURVED:
        progress = work.get(stage, {}).get("progress")
        if isinstance(progress, str):
            with suppress(OSError, ValueError):
                file = open_file(home() / "checkpoints", stage, progress, "metrics.jsonl")
                yield stage, f"checkpoints/{progress}", file
    for stage in _CURVED:
        with suppress(OSError, ValueError):
            yield (
                stage,
                f"artifacts/{record.key(stage)}",
                records.open_artifact(stage, record.key(stage), "metrics.jsonl"),
            )
