"""The decisions of the Dags `stream` and `stream_watch`: which rows are labeled, and what is told of drift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import Asset, Context, task
from airflow.sdk.exceptions import AirflowSkipException

from include.experiment import Experiment
from include.named import build, load, merge
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

    Args:
        result: the stream's name and the windows, as the stage stream and the watch return them. A Dag gives the
            output of their task for it.
        context: the context of the Airflow task.

    Returns:
        The same, as the event has it in its extra.
    """
    windows: list[dict[str, Any]] = result["drift"]
    if not windows:
        raise AirflowSkipException("no window has drifted")
    event = {"stream": result["stream"], "drift": windows}
    context["outlet_events"][DRIFTED].extra = event
    folder = stream_folder(result["stream"])
    newest = max((folder / window["file"]).stat().st_mtime_ns for window in windows)
    context["asset_state_store"][DRIFTED].set(result["stream"], newest)
    return event
