"""What the page of a run shows: its stages over time, its experiment and results, and its files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from include.stages import STAGES
from spark_bert.web.links import LINKS, address
from spark_bert.web.panel import dag_runs
from spark_bert.web.panel.columns import column, value
from spark_bert.web.panel.dag_runs import TaskState
from spark_bert.web.panel.index import Row, changed_fields
from spark_bert.web.panel.records import artifact_key, mapping, read_at_work, read_record, seconds_since_1970
from spark_bert.web.panel.stages import read_stage, refused_files, state_of

#: The facts at the top of the page, as columns of the table.
_FACTS = ("gate", "rows_per_second", "seconds", "steps", "memory")
#: What the run is about, below its name.
_ABOUT = ("data.task", "model.name", "device")


def describe(row: Row) -> dict[str, Any]:
    """Return everything about a run except for its curves and its evaluation, as JSON."""
    record = read_record(row.run)
    return {
        "run": row.run,
        "dag_id": row.dag_id,
        "run_id": row.run_id,
        "state": row.state,
        "changed": row.changed,
        "metric": row.value("metric"),
        "score": row.value("score"),
        "about": [str(value(row, key)) for key in _ABOUT if value(row, key)],
        "facts": [asdict(column(key)) | {"value": value(row, key)} for key in _FACTS if value(row, key) is not None],
        "fields": changed_fields(record),
        "stages": _stages(row, record),
        "files": list(_files(row, record)),
        "evaluation": artifact_key(record, "evaluate"),
    }


def _stages(row: Row, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each stage that the run has made, makes, or will make, in the order in which they began."""
    tasks = dag_runs.task_states(row.dag_id, row.run_id) if row.dag_id else {}
    work = read_at_work(row.run) if row.state == "running" else {}
    found = [
        {
            "stage": stage,
            "does": STAGES[stage].does,
            **_stage(record["stages"].get(stage), tasks.get(stage), work.get(stage)),
        }
        for stage in STAGES
        if stage in record["stages"] or stage in tasks or stage in work
    ]
    return _in_order(found)


def _in_order(stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return stages in the order in which they began: ingest, for example, comes before validate in a retraining.

    Those that have not begun come last, and those of which no time is known stay behind the ones before them.
    """
    began, last = {}, -math.inf
    for stage in stages:
        last = last if stage["started"] is None else stage["started"]
        began[stage["stage"]] = math.inf if stage["state"] in ("waiting", "skipped") else last
    return sorted(stages, key=lambda stage: began[stage["stage"]])


def _stage(entry: dict[str, Any] | None, task: TaskState | None, work: dict[str, Any] | None) -> dict[str, Any]:
    """Return what is known of one stage, from its entry in the record, Airflow's task, and its work under way."""
    if task and task.state == "running" and work is None:
        work = {}  # the task has started, but the stage's process has not, or it does not record its work
    if work is not None and (task is None or task.state == "running"):
        since = seconds_since_1970(work.get("since")) or (task and task.started)
        return {"state": "running", "started": since, "ended": None, "planned_steps": work.get("planned_steps")}
    if entry is None:
        return {"state": _waiting(task), "started": None, "ended": None}
    recorded = read_stage(entry)
    started, ended = recorded.started, recorded.ended
    if ended is None and task:
        started, ended = task.started, task.ended
    return {
        "state": state_of(recorded.outcome),
        "started": started,
        "ended": ended,
        "seconds": mapping(entry.get("result")).get("seconds"),
        "reused": entry.get("reused") is True,
        "message": entry.get("message") or " ".join(refused_files(entry)),
        "tries": task.tries if task else 1,
    }


def _waiting(task: TaskState | None) -> str:
    """Return the state of a stage that has not left anything in the record."""
    state = task.state if task else ""
    return {"skipped": "skipped", "upstream_failed": "skipped", "failed": "failed", "removed": "skipped"}.get(
        state, "waiting"
    )


def _files(row: Row, record: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the files of the run's artifacts that have an address: title, stage, and address."""
    if not row.dag_id:  # the web app for files serves those of Dag runs
        return
    for stage in STAGES:
        files = mapping(mapping(mapping(record["stages"].get(stage)).get("result")).get("files"))
        titles = {link.file: link.title for link in LINKS.get(stage, ())}
        for name, file in files.items():
            if isinstance(file, str) and name in titles:
                yield {"title": titles[name], "stage": stage, "href": address(row.dag_id, row.run_id, stage, file)}
