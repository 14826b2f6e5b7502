"""The decisions of the Dags `stream` and `stream_watch`: which rows are labeled, and what is told of drift.

A service may run the stream instead. The watch then says whether it is alive, and which of its windows have drifted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from airflow.sdk import Asset, BaseOperator, Context, ResumableJobMixin, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from include.drift_windows import in_short
from include.experiment import Experiment
from include.folders import Dropped
from include.named_experiments import changed, load
from spark_bert.dag.assets import DRIFTED
from spark_bert.dag.params import from_form
from spark_bert.deployment.places import home
from spark_bert.retrain.drop_folder import arriving_files
from spark_bert.retrain.retraining import EXPERIMENT
from spark_bert.telemetry.notices import Notice

_REMEDY = "start its service, as docs/STREAM.md describes"
_LONG = 60  # seconds from which the log says that a batch takes long
_TIME = "%Y-%m-%d %H:%M:%S UTC"


def incoming_rows() -> Asset:
    """Return the asset of new unlabeled rows."""
    streaming = load(EXPERIMENT).streaming
    return arriving_files("incoming-rows", streaming.folder, streaming.settle)


def stream_experiment(context: Context) -> Experiment:
    """Return the run's experiment, whose stream ends: a run of a Dag labels the rows that are there."""
    return changed(from_form(context), {"streaming.continuous": False}, "the stream")


def stream_folder(name: str) -> Path:
    """Return the folder of a stream."""
    return home() / "streams" / name


@dataclass(frozen=True)
class Reported:
    """Up to where the windows of a stream were reported."""

    query: str = ""  # the id of Spark's query, which changes if the stream is removed to label its rows again
    last: int = -1  # the last batch of the newest window that was reported

    def has(self, window: dict[str, Any]) -> bool:
        """Return whether a window, as its file describes it, is among them."""
        return bool(window.get("query", "") == self.query and window["last"] <= self.last)


def last_reported(context: Context, stream: str) -> Reported:
    """Return up to where the windows of the stream were reported."""
    value: Any = context["asset_state_store"][DRIFTED].get(stream)
    return Reported(**value) if isinstance(value, dict) else Reported()


@task(
    task_id="drifted",
    outlets=[DRIFTED],
    on_success_callback=Notice("drift"),
    doc_md="notify of windows whose rows have drifted, and update the asset drifted; skipped if there are none",
)
def drifted(result: Any, **context: Any) -> dict[str, Any]:
    """Update the asset `drifted` with the windows of the result's stream that have drifted since the last report."""
    name = result["stream"]
    new = new_windows(stream_folder(name), last_reported(context, name))  # type: ignore[arg-type]
    windows = [window for window in new.values() if window["reasons"]]
    if not windows:
        raise AirflowSkipException("no window has drifted")
    event = {"stream": name, "drift": [in_short(window) for window in windows]}
    context["outlet_events"][DRIFTED].extra = event
    reported = Reported(windows[-1].get("query", ""), windows[-1]["last"])
    context["asset_state_store"][DRIFTED].set(name, asdict(reported))
    return event


def new_windows(folder: Path, reported: Reported, known: Container[Path] = ()) -> dict[Path, dict[str, Any]]:
    """Return the windows in the folder of a stream that were not reported yet, in order, by their files."""
    found = {file: _window(file) for file in (folder / "windows").glob("*.json") if file not in known}
    new = {file: window for file, window in found.items() if not reported.has(window)}
    return dict(sorted(new.items(), key=lambda item: item[1]["last"]))


def _window(file: Path) -> dict[str, Any]:
    try:
        window: dict[str, Any] = json.loads(Dropped(file).read_text(encoding="utf-8"))  # stages write there
        in_short(window)  # whether all is there
        return {**window, "last": int(window["last"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AirflowFailException(f"{file} describes no window ({error!r}): remove it") from error


class StreamDown(AirflowException):
    """A stream that should run does not show that it is alive, or has failed. A later look may find it well."""


@dataclass(frozen=True)
class Heartbeat:
    """What a stream writes into streams/NAME/heartbeat.json every few seconds."""

    instance: str  # the id of the process' life; a restarted stream has another one
    state: str  # `starting`, `running`, `stopped`, or `failed`
    message: str  # why it has failed; otherwise ""
    time: datetime
    batch: int | None  # the number of the last committed batch
    rows: int  # that this instance has labeled
    model_version: str
    batch_since: datetime | None = None  # since when the next batch is at work; None while it waits for rows

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the heartbeat of the stream in this folder. Raise StreamDown if it cannot be read."""
        file = folder / "heartbeat.json"
        try:
            found = json.loads(Dropped(file).read_text(encoding="utf-8"))  # stages write there
            for name in ("time", "batch_since"):
                if name == "time" or found.get(name) is not None:
                    found[name] = datetime.fromisoformat(found[name]).astimezone(UTC)
            return cls(**{name: found[name] for name in cls.__dataclass_fields__ if name in found})
        except FileNotFoundError:
            raise StreamDown(f"the stream {folder.name} has never run, because {file} is missing: {_REMEDY}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StreamDown(f"{file} is no heartbeat ({error!r}): remove it, and {_REMEDY}") from error

    @property
    def progress(self) -> str:
        """How far the stream is, in words."""
        batch = "no batch yet" if self.batch is None else f"batch {self.batch}"
        since = self.batch_since or self.time
        long = (self.time - since).total_seconds() > _LONG
        busy = f", at work on the next one since {since:{_TIME}}" if long else ""
        return f"{self.state}, {batch}{busy}, {self.rows} rows, model {self.model_version or 'not loaded yet'}"


class StreamWatch(ResumableJobMixin, BaseOperator):
    """Watches a stream until rows have drifted, the stream is stopped, or the time is over.

    A service runs the stream; the watch starts nothing. It takes a worker slot, because a trigger that is started again
    would not know the instance. The result names the stream and has the windows that have drifted since the last
    report, which the task `drifted` reports, so that no window is reported twice or lost.

    Args:
        limit: the age in seconds from which a heartbeat says that the stream is down.
        interval: the seconds between two looks.
        longest: the seconds after which a watch ends, so that the next one uses new code and settings.
    """

    external_id_key = "stream_instance"

    def __init__(self, *, limit: float = 30, interval: float = 5, longest: float = 6 * 3600, **keywords: Any) -> None:
        super().__init__(inlets=[DRIFTED], **keywords)
        self.limit, self.interval, self.longest = limit, interval, longest

    def execute(self, context: Context) -> dict[str, Any]:
        """Watch the stream that the form names. Raise StreamDown if it does not run although it was not stopped."""
        self.folder = stream_folder(from_form(context).streaming.name)
        self.reported = last_reported(context, self.folder.name)
        self.sound: set[Path] = set()  # the windows that have not drifted
        self.end = time.monotonic() + self.longest
        result: dict[str, Any] = self.execute_resumable(context)
        return result

    def submit_job(self, context: Context) -> str:
        """Return the instance that runs, and wait for a stream that was stopped.

        It also waits if the run before has failed and this one has not seen the stream yet: one outage is one failure.
        """
        before = context["ti"].get_previous_dagrun()
        seen = context["task_state_store"].get(self.external_id_key)
        patient, told = before is not None and before.state == "failed" and not seen, ""
        while True:
            try:
                beat = self._look()
                if beat.state == "running" or (beat.state == "starting" and not patient) or self._drifted():
                    return beat.instance
                state = f"it was {beat.state} at {beat.time:{_TIME}}"
            except StreamDown as error:
                if not patient:
                    raise
                state = str(error)
            if time.monotonic() >= self.end:
                raise AirflowSkipException(f"there was no stream {self.folder.name} to watch: {state}")
            if state != told:
                self.log.info("waiting for the stream %s: %s", self.folder.name, state)
                told = state
            time.sleep(self.interval)

    def get_job_status(self, external_id: Any, context: Context) -> str:
        """Return the state of the instance: that in its heartbeat, `replaced` after a restart, or `down`."""
        try:
            beat = self._look()
        except StreamDown:
            return "down"
        return beat.state if beat.instance == external_id else "replaced"

    def is_job_active(self, status: str) -> bool:
        """Return whether the instance runs."""
        return status in ("starting", "running")

    def is_job_succeeded(self, status: str) -> bool:
        """Return whether the instance has ended as it should."""
        return status == "stopped"

    def poll_until_complete(self, external_id: Any, context: Context) -> Any:
        """Follow the stream until there is something to report, and return it if the mixin has reconnected."""
        told = ""
        while not self._drifted():
            beat = self._look()
            if beat.instance != external_id:
                self.log.info("the stream was restarted: following its instance %s", beat.instance)
                external_id = beat.instance
                context["task_state_store"].set(self.external_id_key, external_id)
            if beat.progress != told:
                self.log.info("%s: %s", self.folder.name, beat.progress)
                told = beat.progress
            if beat.state == "stopped" or time.monotonic() >= self.end:
                break
            time.sleep(self.interval)
        return self.get_job_result(external_id, context)

    def get_job_result(self, external_id: Any, context: Context) -> dict[str, Any]:
        """Return the windows that have drifted and were not reported yet."""
        return {"stream": self.folder.name, "drift": self._drifted()}

    def _look(self) -> Heartbeat:
        """Return the heartbeat of a stream that runs or was stopped. Raise StreamDown if it has failed or is silent."""
        beat, name = Heartbeat.read(self.folder), self.folder.name
        if beat.state == "failed":
            raise StreamDown(f"the stream {name} failed at {beat.time:{_TIME}}: {beat.message}")
        if beat.state != "stopped" and (datetime.now(UTC) - beat.time).total_seconds() > self.limit:
            time.sleep(self.interval)  # the clock of the stream's machine may be behind: then there is a next heartbeat
            if Heartbeat.read(self.folder).time == beat.time:
                raise StreamDown(
                    f"the stream {name} is down, its last heartbeat is of {beat.time:{_TIME}}: look into the log of "
                    "its service for the reason, and start it again"
                )
        return beat

    def _drifted(self) -> list[dict[str, Any]]:
        windows = new_windows(self.folder, self.reported, self.sound)
        self.sound |= {file for file, window in windows.items() if not window["reasons"]}
        return [in_short(window) for window in windows.values() if window["reasons"]]
