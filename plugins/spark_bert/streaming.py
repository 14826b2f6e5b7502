"""The decisions of the Dags `stream` and `stream_watch`: which rows are labeled, and what is told of drift."""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, Context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from include.experiment import Experiment
from include.named import build, load, merge
from include.windows import in_short
from spark_bert.assets import DRIFTED
from spark_bert.drop_folder import arriving_files
from spark_bert.notices import Notice
from spark_bert.params import from_form
from spark_bert.places import home
from spark_bert.retraining import EXPERIMENT


def incoming_rows() -> Asset:
    """Return the asset of new unlabeled rows, which new files in the stream's folder update, if it has one."""
    return arriving_files("incoming-rows", load(EXPERIMENT).streaming.folder)


def stream_experiment(context: Context) -> Experiment:
    """Return the run's experiment, whose stream ends: a run of a Dag labels the rows that are there.

    Raises:
        BadInput: if the params make no valid experiment.
    """
    return build(merge(from_form(context).model_dump(mode="json"), {"streaming.continuous": False}), "the stream")


def stream_folder(name: str) -> Path:
    """Return the folder of the stream with this name."""
    return home() / "streams" / name


def last_reported(context: Context, stream: str) -> int:
    """Return when the newest window of the stream that was reported was closed.

    Returns:
        The modification time of the window's file in nanoseconds; 0 if no window was reported. It is not the window's
        number, because the numbers start again when somebody removes the stream to label its rows anew.
    """
    value = context["asset_state_store"][DRIFTED].get(stream)
    return value if isinstance(value, int) else 0


@task(
    task_id="drifted",
    outlets=[DRIFTED],
    on_success_callback=Notice("drift"),
    doc_md="notify of windows whose rows have drifted, and update the asset drifted; skipped if there are none",
)
def drifted(result: Any, **context: Any) -> dict[str, Any]:
    """Update the asset `drifted` with the windows that have drifted, and note that they were reported.

    The windows are those since the last report, so that one that a run has closed before it failed is reported too.

    Args:
        result: the result of the stage stream or of the watch, which names the stream. A Dag gives the output of their
            task for it.
        context: the context of the Airflow task.

    Returns:
        The stream's name and the windows, as the event has them in its extra.
    """
    name = result["stream"]
    closed = new_windows(stream_folder(name), last_reported(context, name))  # type: ignore[arg-type]
    windows = {file: window for file, window in closed.items() if window["reasons"]}
    if not windows:
        raise AirflowSkipException("no window has drifted")
    event = {"stream": name, "drift": list(windows.values())}
    context["outlet_events"][DRIFTED].extra = event
    context["asset_state_store"][DRIFTED].set(name, max(file.stat().st_mtime_ns for file in windows))
    return event


def new_windows(folder: Path, since: int, known: Container[Path] = ()) -> dict[Path, dict[str, Any]]:
    """Return what a report says about the windows of a stream, those closed first first, by their files.

    Args:
        folder: the folder of the stream.
        since: the modification time in nanoseconds after which the windows were closed.
        known: files that are left out.

    Raises:
        AirflowFailException: if a file does not describe a window.
    """
    closed = {file: file.stat().st_mtime_ns for file in (folder / "windows").glob("*.json")}
    new = [file for file, when in closed.items() if when > since and file not in known]
    return {file: _window(file) for file in sorted(new, key=closed.__getitem__)}


def _window(file: Path) -> dict[str, Any]:
    """Return what a report says about the window."""
    try:
        return in_short(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise AirflowFailException(f"{file} describes no window ({error!r}): remove it") from error
