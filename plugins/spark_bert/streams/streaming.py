"""The decisions of the Dags `stream` and `stream_watch`: which rows are labeled, and what is told of drift."""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, Context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from include.drift_windows import in_short
from include.experiment import Experiment
from include.folders import Dropped
from include.named import build, load, merge
from spark_bert.dag.assets import DRIFTED
from spark_bert.dag.params import from_form
from spark_bert.deployment.places import home
from spark_bert.retrain.drop_folder import arriving_files
from spark_bert.retrain.retraining import EXPERIMENT
from spark_bert.telemetry.notices import Notice


def incoming_rows() -> Asset:
    """Return the asset of new unlabeled rows."""
    streaming = load(EXPERIMENT).streaming
    return arriving_files("incoming-rows", streaming.folder, streaming.settle)


def stream_experiment(context: Context) -> Experiment:
    """Return the run's experiment, whose stream ends: a run of a Dag labels the rows that are there."""
    return build(merge(from_form(context).model_dump(mode="json"), {"streaming.continuous": False}), "the stream")


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
