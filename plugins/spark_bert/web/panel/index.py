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

from include.folders import open_file
from include.runs import AT_WORK
from include.stages import STAGES
from include.text import is_unwritable
from spark_bert.deployment.places import home
from spark_bert.web.links import address
from spark_bert.web.panel import records
from spark_bert.web.panel.columns import DEFAULTS, METRIC, find_values
from spark_bert.web.panel.dag_runs import DagRuns, DagRunState
from spark_bert.web.panel.records import Champion, Entry, mapping, read_record

#: A run that no Dag made counts as running for this time after the last sign of a stage at work, in seconds, because a
#: stage that was killed leaves its record behind.
_FRESH = 1800
#: Seconds between two looks at a run that has ended. Looking at 10,000 takes longer than all else.
_SETTLED = 20
_METRICS = 100  # metrics of a run, of which stages write fewer than 20
#: What tells whether a file has changed: its time in ns since 1970, size, and inode.
Stamp = tuple[int, int, int]
_NO_RECORD: Stamp = (0, 0, 0)


@dataclass(frozen=True)
class Row:
    """One run in the index. Rows are equal if they are the same run, and its record has not changed in between."""

    run: str  # the name of its folder
    dag_id: str = ""  # "" if no Dag made it
    run_id: str = ""  # in Airflow, with the index in a mapped task group
    changed: float = 0  # when its record was last written, in seconds since 1970; 0 if it has none yet
    state: str = field(default="done", compare=False)  # running, done, refused, failed or stopped
    begun: bool = field(default=False, compare=False)  # whether its record has an experiment
    metrics: Mapping[str, float] = field(default_factory=dict, compare=False)  # of its dev split
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)  # what else is known of it, by column
    stages: Mapping[str, Entry] = field(default_factory=dict, compare=False)  # with only two numbers of their results
    champion: Champion | None = field(default=None, compare=False)  # that the run has seen or made
    damaged: bool = field(default=False, compare=False)  # whether not all of its record can be read

    @property
    def source(self) -> dict[str, str]:
        """What a page needs for a link to the run."""
        return {"run": self.run, "dag_id": self.dag_id, "run_id": self.run_id}

    @property
    def about(self) -> dict[str, str]:
        """The same, and the state of the run."""
        return {**self.source, "state": self.state}

    def value(self, column: str) -> Any:
        """Return the value of a column, or None. Fields that the run leaves at their defaults have those."""
        if column in ("run", "dag_id", "run_id", "state", "changed"):
            return getattr(self, column)
        if column.startswith(METRIC):
            return self.metrics.get(column.removeprefix(METRIC))
        found = self.values.get(column)
        return DEFAULTS.get(column) if found is None and self.begun else found

    def href(self, stage: str, entry: Entry, name: str) -> str:
        """Return the address of the file that the result of a stage lists under a name; "" if it has none."""
        file = mapping(entry.result.get("files")).get(name)
        if not self.dag_id or not isinstance(file, str):  # the web app for files serves those of Dag runs
            return ""
        return address(self.dag_id, self.run_id, stage, file)


class Index:
    """All runs of the home."""

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
        """Return all runs that have a record, as the records say, in the order in which they were written."""
        with self._lock:
            self._enter_home()
            self._refresh(dict(self._stamps()))
            rows = [row for _, row in self._rows.values() if row.changed]
        return sorted(rows, key=lambda row: row.changed)

    def find(self, name: str) -> Row | None:
        """Return one run as it is now, or None. A run that Airflow has only just started has no folder yet."""
        dag_run = self._dag_runs.states().get(name)
        with self._lock:
            self._enter_home()
            self._refresh(dict(_stamp(self._root, name)), {name})
            row = self._rows[name][1] if name in self._rows else None
        if row is None and (dag_run is None or dag_run.state != "running"):
            return None
        return _with_state(row or Row(name), dag_run)

    def _enter_home(self) -> None:
        root = str(home() / "runs")  # a Path for each run would take longer than the rest
        if self._root != root:
            self._root, self._looked, self._rows = root, 0.0, {}

    def _refresh(self, stamps: Mapping[str, Stamp], among: Collection[str] | None = None) -> None:
        """Read the records whose stamps have changed, and forget the runs that are gone, of all or among some."""
        for name in (self._rows.keys() if among is None else self._rows.keys() & among) - stamps.keys():
            del self._rows[name]
        for name, stamp in stamps.items():
            if name not in self._rows or self._rows[name][0] != stamp:
                self._rows[name] = stamp, _row(name, stamp)

    def _stamps(self, settled: Collection[str] = ()) -> Iterator[tuple[str, Stamp]]:
        """Yield each run's folder and the stamp of its record. Settled ones are checked every _SETTLED seconds."""
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
    entries = {stage: entry for stage, entry in record.stages.items() if stage in STAGES}
    scores = mapping(entries["evaluate"].result.get("metrics")) if "evaluate" in entries else {}
    metrics = {intern(name): value for name, value in islice(scores.items(), _METRICS) if records.is_number(value)}
    return Row(
        name,
        record.dag_id,
        record.run_id,
        changed=stamp[0] / 1e9,
        state=records.state_of(records.outcome_of(entries)),
        begun=bool(record.experiment),
        metrics=metrics,
        values=find_values(record.experiment, metrics, entries),
        stages={
            stage: entry._replace(result={name: entry.result.get(name) for name in ("seconds", "rows_per_second")})
            for stage, entry in entries.items()
        },
        champion=records.find_champion(entries),
        # A record is first written when a stage has ended.
        damaged=stamp != _NO_RECORD and (not entries or any(one.exit_code is None for one in entries.values())),
    )


def _with_state(row: Row, dag_run: DagRunState | None) -> Row:
    if dag_run:
        keeps = dag_run.state == "success" or (dag_run.state != "running" and row.state != "done")
        state = row.state if keeps else dag_run.state
        if row.dag_id and row.state == state:
            return row
        return replace(row, dag_id=dag_run.dag_id, run_id=dag_run.run_id, state=state)
    if row.dag_id:
        return row
    last_sign = _last_sign_of_work(row.run)
    if last_sign is None:
        return row
    left_behind = "stopped" if row.state == "done" else row.state
    return replace(row, state="running" if time.time() - last_sign < _FRESH else left_behind)


def _last_sign_of_work(run: str) -> float | None:
    """Return when a stage at work began or last wrote metrics, in seconds since 1970; None if none is at work."""
    folder = f"{home()}/runs/{run}/{AT_WORK}"
    try:  # most have ended, and this is faster than reading safely
        if not stat.S_ISDIR(os.lstat(folder).st_mode) or not os.listdir(folder):  # noqa: PTH208 a Path takes longer
            return None
    except (OSError, ValueError):
        return None
    times = list[float]()
    for stage, work in records.read_at_work(run).items():
        times.append(records.seconds_since_1970(work.get("since")) or 0)
        metrics = stage, str(work.get("progress")), "metrics.jsonl"
        with suppress(OSError), open_file(home() / "checkpoints", *metrics) as file:
            times.append(os.fstat(file.fileno()).st_mtime)
    return max(times, default=None)
