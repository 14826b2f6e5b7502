"""The index of all runs, for the panel and for Prometheus. A record is read again only if its file has changed."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from sys import intern
from threading import Lock
from typing import Any

from include.at_work import AT_WORK
from include.experiment import Experiment
from include.folders import open_file
from include.glue import TASKS
from include.stages import STAGES, flatten
from include.text import is_unwritable
from spark_bert.deployment.places import home
from spark_bert.web.panel.dag_runs import DagRuns, DagRunState
from spark_bert.web.panel.records import dag_of, mapping, read_at_work, read_record, seconds_since_1970
from spark_bert.web.panel.stages import (
    Champion,
    RecordedStage,
    has_exit_code,
    is_number,
    outcome_of,
    read_champion,
    read_stage,
    seconds_at_work,
    state_of,
)

#: A run that no Dag made counts as running for so long after the last sign of a stage at work, in seconds. There is
#: nobody who could be asked, and a stage that was killed leaves its record behind.
_FRESH = 1800
#: A run that has ended is looked at only every so many seconds: looking at 10,000 takes longer than all else.
_SETTLED = 20
#: What the columns of metrics begin with.
METRIC = "metrics."
_METRICS = 100  # metrics of a run, of which stages write fewer than 20
#: What tells whether a file has changed: its time in ns since 1970, size, and inode.
Stamp = tuple[int, int, int]
_NO_RECORD: Stamp = (0, 0, 0)


@dataclass(frozen=True)
class Row:
    """One run in the index.

    Attributes:
        run: the name of its folder.
        dag_id: its Dag; "" if no Dag made it.
        run_id: its run id in Airflow, with the index in a mapped task group; "" if no Dag made it.
        state: running, done, refused, failed or stopped.
        changed: when its record was last written, in seconds since 1970; 0 if it has none yet.
        begun: whether its record has an experiment. A field that is not among the values then has its default.
        metrics: the metrics of its dev split, by name.
        values: what else is known of it, by column (see columns.py).
        stages: the stages that have ended, in the order in which they were recorded.
        champion: the champion when the run ended; None if the run did not ask for it, or there was none.
        damaged: whether its record cannot be read, or not all of it.
    """

    run: str
    dag_id: str = ""
    run_id: str = ""
    state: str = "done"
    changed: float = 0
    begun: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, Any] | None = None
    stages: Mapping[str, RecordedStage] = field(default_factory=dict)
    champion: Champion | None = None
    damaged: bool = False

    def value(self, column: str) -> Any:
        """Return the value of a column, or None."""
        if column in ("run", "dag_id", "run_id", "state", "changed"):
            return getattr(self, column)
        if column.startswith(METRIC):
            return self.metrics.get(column.removeprefix(METRIC))
        return (self.values or {}).get(column)


class Index:
    """All runs of a home."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._root = ""
        self._looked = 0.0
        self._rows: dict[str, tuple[Stamp, Row]] = {}
        self._active: set[str] = set()
        self._dag_runs = DagRuns()

    def rows(self) -> list[Row]:
        """Return all runs as they are now, in no particular order."""
        states = self._dag_runs.states()
        active = {name for name, run in states.items() if run.state == "running"}
        with self._lock:
            self._enter_home()
            of_dags = {name for name, (_, row) in self._rows.items() if row.dag_id}
            settled = (states.keys() | of_dags) - active - self._active
            self._refresh(dict(self._stamps(settled)))
            self._active = active
            rows = [row for _, row in self._rows.values()]
        return [_with_state(row, states.get(row.run)) for row in rows]

    def recorded(self) -> list[Row]:
        """Return all runs that have a record, only as the records say, the one that was written last at the end."""
        with self._lock:
            self._enter_home()
            self._refresh(dict(self._stamps()))
            rows = [row for _, row in self._rows.values() if row.changed]
        return sorted(rows, key=lambda row: row.changed)

    def find(self, name: str) -> Row | None:
        """Return one run as it is now, or None if there is none of this name.

        A run that Airflow has only just started has no folder yet.
        """
        dag_run = self._dag_runs.states().get(name)
        with self._lock:
            self._enter_home()
            self._refresh(dict(_stamp(self._root, name)), {name})
            row = self._rows[name][1] if name in self._rows else None
        if row is None and (dag_run is None or dag_run.state != "running"):
            return None
        return _with_state(row or Row(name), dag_run)

    def _enter_home(self) -> None:
        """Forget everything if the home is another one."""
        root = str(home() / "runs")  # a Path for each run would take longer than the rest
        if self._root != root:
            self._root, self._looked, self._rows = root, 0.0, {}

    def _refresh(self, stamps: Mapping[str, Stamp], among: Collection[str] | None = None) -> None:
        """Read the records whose stamps have changed, and forget those of all runs, or among some, that are gone."""
        for name in (self._rows.keys() if among is None else self._rows.keys() & among) - stamps.keys():
            del self._rows[name]
        for name, stamp in stamps.items():
            if name not in self._rows or self._rows[name][0] != stamp:
                self._rows[name] = stamp, _row(name, stamp)

    def _stamps(self, settled: Collection[str] = ()) -> Iterator[tuple[str, Stamp]]:
        """Yield each run's folder, and the stamp of its record, _NO_RECORD if there is none yet.

        A run whose Dag run has settled and whose record was written before is looked at only every _SETTLED seconds.
        """
        now = time.time()
        every, before = not settled or now - self._looked > _SETTLED, (now - _SETTLED) * 1e9
        self._looked = now if every else self._looked
        with suppress(FileNotFoundError), os.scandir(self._root) as entries:
            for entry in entries:
                stamp, row = self._rows.get(entry.name, (_NO_RECORD, None))
                if row and stamp[0] < before and not every and entry.name in settled:
                    yield entry.name, stamp
                elif entry.is_dir(follow_symlinks=False):
                    yield from _stamp(self._root, entry.name)


#: The index of this process, because the panel and Prometheus read the same records.
INDEX = Index()


def _stamp(root: str, name: str) -> Iterator[tuple[str, Stamp]]:
    if not name or name.startswith(".") or "/" in name or is_unwritable(name):
        return
    folder = f"{root}/{name}"
    try:
        file = os.stat(f"{folder}/run.json", follow_symlinks=False)  # noqa: PTH116
        yield name, (file.st_mtime_ns, file.st_size, file.st_ino)
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            if stat.S_ISDIR(os.lstat(folder).st_mode):
                yield name, _NO_RECORD


def _row(name: str, stamp: Stamp) -> Row:
    record = read_record(name)
    entries = {stage: entry for stage, entry in record["stages"].items() if stage in STAGES}
    results = {stage: mapping(entry.get("result")) for stage, entry in entries.items()}
    stages = {stage: read_stage(entry) for stage, entry in entries.items()}
    scores = mapping(results.get("evaluate", {}).get("metrics"))
    metrics = {intern(name): value for name, value in islice(scores.items(), _METRICS) if is_number(value)}
    return Row(
        name,
        *dag_of(name, record),
        state=state_of(outcome_of(stages)),
        changed=stamp[0] / 1e9,
        begun=bool(record.get("experiment")),
        metrics=metrics,
        values=_values(changed_fields(record), metrics, results, stages),
        stages=stages,
        champion=read_champion(results),
        # A record is first written when a stage has ended.
        damaged=stamp != _NO_RECORD and not (entries and all(map(has_exit_code, entries.values()))),
    )


def _with_state(row: Row, dag_run: DagRunState | None) -> Row:
    """Return the row with its Dag and the state of this moment; `dag_run` is None if Airflow knows of none."""
    if dag_run:
        keeps = dag_run.state == "success" or (dag_run.state != "running" and row.state != "done")
        state = row.state if keeps else dag_run.state
        if row.dag_id and row.state == state:
            return row
        return replace(row, dag_id=dag_run.dag_id, run_id=dag_run.run_id, state=state)
    if row.dag_id:
        return row
    age = _age_of_work(row.run)
    if age is None:
        return row
    left_behind = "stopped" if row.state == "done" else row.state
    return replace(row, state="running" if age < _FRESH else left_behind)


def _age_of_work(run: str) -> float | None:
    """Return for how long the stages at work in a run have written nothing, in s; None if none is at work."""
    if not _may_be_at_work(f"{home()}/runs/{run}/{AT_WORK}"):
        return None
    times = [_last_sign(stage, work) for stage, work in read_at_work(run).items()]
    return time.time() - max(times) if times else None


def _may_be_at_work(folder: str) -> bool:
    """Return whether there is anything in the folder. Most have ended, and this is faster than reading safely."""
    try:
        return stat.S_ISDIR(os.lstat(folder).st_mode) and bool(os.listdir(folder))  # noqa: PTH208 a Path takes longer
    except (OSError, ValueError):
        return False


def _last_sign(stage: str, work: Mapping[str, Any]) -> float:
    """Return when a stage at work began or, if that is later, last wrote metrics, in seconds since 1970."""
    since = seconds_since_1970(work.get("since")) or 0
    with (
        suppress(OSError),
        open_file(home() / "checkpoints", stage, str(work.get("progress")), "metrics.jsonl") as file,
    ):
        since = max(since, os.fstat(file.fileno()).st_mtime)
    return since


def _values(
    fields: Mapping[str, Any],
    metrics: Mapping[str, float],
    results: Mapping[str, Mapping[str, Any]],
    stages: Mapping[str, RecordedStage],
) -> dict[str, Any]:
    """Return the columns of a run: of its results, and the fields of its experiment that are not the defaults."""
    trained = results.get("train", {})
    task = fields.get("data.task", DEFAULTS["data.task"])
    metric = trained.get("metric") or (TASKS[task].metric if isinstance(task, str) and task in TASKS else None)
    score = metrics.get(metric, trained.get("best")) if isinstance(metric, str) else None
    found = {
        "metric": metric,
        "score": score if isinstance(score, int | float) else None,
        "gate": results.get("gate", {}).get("passed"),
        **{name: trained.get(name) for name in ("rows_per_second", "steps", "memory", "device", "padding_share")},
        "train_seconds": trained.get("seconds"),
        "seconds": seconds_at_work(stages.values()),
        "stages": len(results),
        **fields,
    }
    return {name: value for name, value in found.items() if value is not None}


def changed_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record's experiment ("section.field") that differ from their defaults.

    A field that the record lacks had its default value.
    """
    return {
        intern(f"{section}.{name}"): value
        for section, fields in mapping(record.get("experiment")).items()
        if fields != _SECTIONS.get(section)  # which they mostly equal, and this is seen at once
        for name, value in mapping(fields).items()
        if _SECTIONS.get(section, {}).get(name) != value
    }


_SECTIONS: dict[str, dict[str, Any]] = Experiment().model_dump(mode="json")
#: The value of each field ("section.field") of an experiment that does not set it.
DEFAULTS: dict[str, Any] = flatten(_SECTIONS)
