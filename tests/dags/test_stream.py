"""The Dags stream and stream_watch: what starts them, what their forms offer, and what follows from drift."""

from __future__ import annotations

import importlib
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.definitions.timetables.simple import ContinuousTimetable
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors

from include.artifacts import write_json
from spark_bert.dag.assets import DRIFTED
from spark_bert.dag.params import resolve
from spark_bert.deployment.places import data_path
from spark_bert.operators.base import StageOperator
from spark_bert.retrain.drop_folder import DropFolderTrigger, acknowledge_event
from spark_bert.streams.streaming import Reported, StreamWatch, drifted, incoming_rows, last_reported
from tests.airflow_home import HOME, airflow

WINDOW = {"window": "batches 3 to 7", "rows": 1040, "file": "windows/3-7.json", "reasons": ["too long"]}


@pytest.fixture(scope="module")
def stream() -> DAG:
    found = importlib.import_module("dags.stream").dag
    assert isinstance(found, DAG)
    return found


@pytest.fixture(scope="module")
def watch() -> DAG:
    found = importlib.import_module("dags.stream_watch").dag
    assert isinstance(found, DAG)
    return found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    return tmp_path


def test_files_that_arrive_start_a_run(stream: DAG) -> None:
    timetable: Any = stream.timetable
    rows = timetable.asset_condition
    assert rows == incoming_rows() and rows.uri == "spark-bert://incoming-rows/"
    (watcher,) = rows.watchers
    assert isinstance(watcher.trigger, DropFolderTrigger) and watcher.trigger.folder == str(data_path("data/incoming"))
    assert stream.is_paused_upon_creation and stream.max_active_runs == 1


def test_no_folder_is_watched_where_none_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "retrain.yaml").write_text("streaming: {source: kafka, brokers: 'kafka:9092', topic: reviews}")
    monkeypatch.setattr("include.named_experiments.FOLDER", tmp_path)
    assert incoming_rows().watchers == []


def test_the_tasks_of_a_run(stream: DAG) -> None:
    task: Any = stream.get_task("stream")
    assert isinstance(task, StageOperator) and task.downstream_task_ids == {"drifted"} and len(stream.tasks) == 2
    assert task.on_execute_callback == [acknowledge_event] and task.inlets == [incoming_rows()]


def test_the_form_describes_rows_model_and_limits(stream: DAG) -> None:
    offered = {"streaming.source", "streaming.folder", "streaming.brokers", "streaming.topic", "streaming.model"}
    offered |= {"streaming.window_rows", "prediction.form", "dataset.name", "dataset.max_length_drift"}
    assert offered <= set(stream.params)
    assert not {"streaming.continuous", "streaming.interval", "dataset.drop", "data.task"} & set(stream.params)
    sent = {"experiment": "retrain", "streaming.text": "review", "dataset.max_label_drift": 0.2}
    experiment = resolve(sent)
    assert (experiment.streaming.folder, experiment.streaming.texts) == ("data/incoming", ("review",))


def test_a_run_ends_even_if_the_experiment_goes_on(
    stream: DAG, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "retrain.yaml").write_text("streaming: {folder: data/incoming, continuous: true, interval: 5}")
    (tmp_path / "movies.yaml").write_text("{}")
    monkeypatch.setattr("include.named_experiments.FOLDER", tmp_path)
    task = stream.get_task("stream")
    assert isinstance(task, StageOperator)
    run = SimpleNamespace(dag_id="stream", run_id="manual__1")
    task.render_template_fields({"params": {"experiment": "retrain"}, "dag_run": run})
    assert json.loads(task.command[-3])["streaming"] == {"folder": "data/incoming", "interval": 5.0}


@pytest.mark.parametrize(("settle", "waits"), [("", 10), ("settle: 45", 45)])
def test_a_run_starts_no_sooner_than_it_would_read_the_file(
    settle: str, waits: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "retrain.yaml").write_text(f"streaming: {{folder: data/incoming, {settle}}}")
    monkeypatch.setattr("include.named_experiments.FOLDER", tmp_path)
    (watcher,) = incoming_rows().watchers
    assert isinstance(watcher.trigger, DropFolderTrigger) and watcher.trigger.settle == waits


def test_there_is_always_one_watch(watch: DAG) -> None:
    assert (
        isinstance(watch.timetable, ContinuousTimetable)
        and watch.max_active_runs == 1
        and watch.is_paused_upon_creation
    )
    task = watch.get_task("watch")
    assert isinstance(task, StreamWatch) and task.downstream_task_ids == {"drifted"} and task.inlets == [DRIFTED]
    assert watch.dagrun_timeout is not None and task.longest * 2 < watch.dagrun_timeout.total_seconds()
    assert set(watch.params) == {"experiment", "streaming.name"}
    assert ParamsDict(watch.params).validate()["experiment"] == "retrain"


def test_people_and_the_dag_retrain_are_told_of_drift(stream: DAG, watch: DAG) -> None:
    for dag in (stream, watch):
        task: Any = dag.get_task("drifted")
        assert task.outlets == [DRIFTED] and [notice.event for notice in task.on_success_callback] == ["drift"]
    retrain: Any = importlib.import_module("dags.retrain").dag.timetable
    assert DRIFTED in retrain.asset_condition.objects


def test_airflow_keeps_which_windows_were_reported(database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_HOME", str(HOME / "work"))
    folder = HOME / "work/streams/stream"
    (folder / "windows").mkdir(parents=True)
    beat = {"instance": "a1", "state": "stopped", "message": "", "batch": 9, "rows": 1, "model_version": "reviews/3"}
    write_json(folder / "heartbeat.json", {**beat, "time": datetime.now(UTC).isoformat()})
    window = {"first": 3, "last": 7, "rows": 1040, "reasons": ["too long"], "query": "q1"}
    write_json(folder / "windows/3-7.json", window)
    done = airflow("dags", "test", "stream_watch")
    assert done.returncode == 0, done.stdout + done.stderr
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        (asset,) = session.scalars(select(AssetModel).where(AssetModel.name == DRIFTED.name))
        (event,) = session.scalars(select(AssetEvent).where(AssetEvent.asset_id == asset.id))
        assert event.extra == {"stream": "stream", "drift": [WINDOW]}
        (state,) = session.scalars(select(AssetStateStoreModel).where(AssetStateStoreModel.asset_id == asset.id))
        assert (state.key, json.loads(state.value)) == ("stream", {"query": "q1", "last": 7})


def context() -> Any:
    """A context in which a state of the asset is kept."""
    state: dict[str, Any] = {}
    store = SimpleNamespace(get=state.get, set=state.__setitem__)
    return {"outlet_events": OutletEventAccessors(), "asset_state_store": {DRIFTED: store}}


def close(home: Path, window: dict[str, Any], name: str) -> dict[str, Any]:
    """Write a window as the stage stream does, and return what a report says about it."""
    first, last = name.split("-")
    file = home / f"streams/stream/windows/{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**window, "first": int(first), "last": int(last)}))
    return {**window, "window": f"batches {first} to {last}", "file": f"windows/{name}.json"}


def test_a_window_that_drifted_is_an_event_and_is_not_reported_again(home: Path) -> None:
    drift = {"rows": WINDOW["rows"], "reasons": WINDOW["reasons"]}
    second, first = close(home, drift, "8-10"), close(home, drift, "3-7")
    close(home, {**drift, "reasons": []}, "11-12")
    now = context()
    assert last_reported(now, "stream") == Reported()
    event = drifted.function({"stream": "stream"}, **now)
    assert event == now["outlet_events"][DRIFTED].extra == {"stream": "stream", "drift": [first, second]}
    assert last_reported(now, "stream") == Reported(last=10) and last_reported(now, "another") == Reported()
    with pytest.raises(AirflowSkipException, match="no window has drifted"):
        drifted.function({"stream": "stream"}, **now)


def test_without_drift_there_is_no_event(home: Path) -> None:
    now = context()
    with pytest.raises(AirflowSkipException, match="no window has drifted"):
        drifted.function({"stream": "stream"}, **now)
    assert last_reported(now, "stream") == Reported() and not now["outlet_events"][DRIFTED].extra
