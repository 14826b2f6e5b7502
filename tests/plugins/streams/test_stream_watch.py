"""The watch over a stream: what it makes of the heartbeats and windows on disk, over tries and runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors

from include.artifacts import write_json
from include.stages import BadInput
from spark_bert.dag.assets import DRIFTED
from spark_bert.retrain.retraining import EXPERIMENT
from spark_bert.streams.streaming import Heartbeat, StreamDown, StreamWatch, drifted

LONG = "the drift of length is 0.31, above dataset.max_length_drift = 0.25"


class Stream:
    """A stream's folder, into which the test writes what a service would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "windows").mkdir(parents=True)

    def beats(self, state: str = "running", instance: str = "a1", age: float = 0, **more: Any) -> None:
        when = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
        beat = {"instance": instance, "state": state, "message": "", "time": when, "started": when, "batch": 7}
        write_json(self.folder / "heartbeat.json", {**beat, "rows": 1040, "model_version": "reviews/3", **more})

    def closes(self, first: int, last: int, *reasons: str, query: str = "q1") -> None:
        window = {"first": first, "last": last, "rows": 1040, "reasons": list(reasons), "query": query}
        write_json(self.folder / f"windows/{first}-{last}.json", window)


class Store(dict[str, Any]):
    """The states that Airflow keeps for a task instance or an asset."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    return Stream(tmp_path / "streams/stream")


@pytest.fixture
def asset() -> Store:
    return Store()


def context(asset: Store, before: str | None = None, tries: Store | None = None, **conf: Any) -> Any:
    """A try of a run, after a run that ended in a state, with what earlier tries have kept."""
    earlier = None if before is None else SimpleNamespace(state=before)
    return {
        "params": {"experiment": EXPERIMENT, **conf},
        "ti": SimpleNamespace(get_previous_dagrun=lambda: earlier, stats_tags={}),
        "task_state_store": Store() if tries is None else tries,
        "asset_state_store": {DRIFTED: asset},
        "outlet_events": OutletEventAccessors(),
    }


def watch(longest: float = 20, limit: float = 30) -> StreamWatch:
    return StreamWatch(task_id="watch", limit=limit, interval=0.02, longest=longest)


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let something happen between two looks of the watch: the first between the first two, and so on."""

    def happens(*steps: Callable[[], None]) -> None:
        coming = iter(steps)
        sleep = lambda seconds: next(coming, lambda: time.sleep(seconds))()  # noqa: E731
        monkeypatch.setattr("spark_bert.streams.streaming.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))

    return happens


@pytest.mark.parametrize(("seconds", "said"), [(30, False), (90, True)])
def test_the_log_says_that_a_batch_takes_long(stream: Stream, seconds: int, said: bool) -> None:
    stream.beats("running", batch_since=(datetime.now(UTC) - timedelta(seconds=seconds)).isoformat())
    assert ("running, batch 7, at work on the next one since 2" in Heartbeat.read(stream.folder).progress) == said


def test_it_follows_a_stream_until_it_is_stopped(
    stream: Stream, asset: Store, story: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    stream.beats("starting", batch=None, rows=0, model_version="")
    story(
        lambda: None, lambda: stream.beats(batch=8, rows=20), lambda: None,
        lambda: stream.beats("stopped", batch=9, rows=30),
    )  # fmt: skip
    now = context(asset)
    assert watch().execute(now) == {"stream": "stream", "drift": []}
    log = capsys.readouterr().out
    assert log.count("stream: starting, no batch yet, 0 rows, model not loaded yet") == 1
    assert log.count("stream: running, batch 8, 20 rows, model reviews/3") == 1 and "stopped, batch 9, 30 rows" in log
    assert now["task_state_store"] == {"stream_instance": "a1"}


def test_it_ends_as_soon_as_a_window_has_drifted(stream: Stream, asset: Store, story: Callable[..., None]) -> None:
    stream.beats()
    stream.closes(0, 2)
    story(lambda: stream.closes(3, 7, LONG))
    found = watch().execute(context(asset))
    window = {"window": "batches 3 to 7", "rows": 1040, "reasons": [LONG], "file": "windows/3-7.json"}
    assert found == {"stream": "stream", "drift": [window]}


def test_a_window_is_reported_once_over_tries_and_runs(stream: Stream, asset: Store) -> None:
    stream.beats("stopped")
    stream.closes(10, 11, LONG)
    stream.closes(3, 7, LONG)
    first = context(asset)
    found = watch().execute(first)
    assert [window["window"] for window in found["drift"]] == ["batches 3 to 7", "batches 10 to 11"]
    assert watch().execute(context(asset)) == found  # the run has ended before it reported them
    drifted.function(found, **first)
    stream.closes(12, 13)
    stream.closes(14, 14, LONG)
    os.utime(stream.folder / "windows/14-14.json", (1, 1))  # the clock was put back
    again = watch().execute(context(asset, "success"))
    assert [window["window"] for window in again["drift"]] == ["batches 14 to 14"]
    drifted.function(again, **context(asset))
    with pytest.raises(AirflowSkipException, match="there was no stream stream to watch: it was stopped at"):
        watch(0.1).execute(context(asset, "success"))


def test_windows_of_a_stream_that_begins_anew_are_reported(stream: Stream, asset: Store) -> None:
    stream.beats()
    stream.closes(40, 47, LONG)
    drifted.function(watch().execute(context(asset)), **context(asset))
    (stream.folder / "windows/40-47.json").unlink()
    stream.closes(0, 3, LONG, query="q2")
    (window,) = watch().execute(context(asset))["drift"]
    assert window["window"] == "batches 0 to 3"


def test_it_follows_a_stream_that_was_restarted(
    stream: Stream, asset: Store, story: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    stream.beats(age=10)
    story(lambda: stream.beats("starting", "b2"), lambda: stream.beats("stopped", "b2"))
    now = context(asset)
    watch().execute(now)
    assert now["task_state_store"] == {"stream_instance": "b2"}
    assert "the stream was restarted: following its instance b2" in capsys.readouterr().out


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_retry_goes_on_with_the_instance(
    state: str, stream: Stream, asset: Store, story: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    stream.beats(state)
    story(lambda: stream.closes(3, 7, LONG))
    found = watch().execute(context(asset, tries=Store(stream_instance="a1")))
    assert len(found["drift"]) == 1  # of a watch that has reconnected, too
    assert "Reconnecting to existing job" in capsys.readouterr().out


def test_a_retry_after_a_restart_follows_the_new_instance(
    stream: Stream, asset: Store, story: Callable[..., None]
) -> None:
    stream.beats(instance="b2")
    story(lambda: stream.beats("stopped", "b2"))
    tries = Store(stream_instance="a1")
    watch().execute(context(asset, tries=tries))
    assert tries == {"stream_instance": "b2"}


def test_a_retry_after_the_end_reports_what_has_drifted(stream: Stream, asset: Store) -> None:
    stream.beats("stopped")
    stream.closes(3, 7, LONG)
    assert len(watch().execute(context(asset, tries=Store(stream_instance="a1")))["drift"]) == 1


@pytest.mark.parametrize("tries", [{}, {"stream_instance": "a1"}])
def test_a_stream_without_a_heartbeat_fails_the_try(stream: Stream, asset: Store, tries: dict[str, str]) -> None:
    file = stream.folder / "heartbeat.json"
    with pytest.raises(StreamDown) as missing:
        watch().execute(context(asset, tries=Store(tries)))
    assert str(missing.value) == (
        f"the stream stream has never run, because {file} is missing: start its service, as docs/STREAM.md describes"
    )
    late = '{"time": "2026-01-01T00:00:00+00:00", "batch_since": 7}'
    for text in ('{"instance": "a', "[]", '{"instance": "a1"}', '{"time": "noon"}', late):
        file.write_text(text)
        with pytest.raises(StreamDown, match=f"{file} is no heartbeat .*: remove it, and start its service"):
            watch().execute(context(asset, tries=Store(tries)))


def test_an_old_heartbeat_fails_the_try(stream: Stream, asset: Store) -> None:
    stream.beats(age=40)
    with pytest.raises(
        StreamDown, match=r"the stream stream is down, its last heartbeat is of 20\d\d-.* UTC: look into"
    ):
        watch().execute(context(asset))
    stream.beats()
    with pytest.raises(StreamDown, match="is down"):  # it was alive at first
        watch(limit=0.2).execute(context(asset))


def test_a_stream_whose_clock_is_behind_is_alive(stream: Stream, asset: Store, story: Callable[..., None]) -> None:
    stream.beats(age=400)
    story(lambda: stream.beats(age=398), lambda: stream.beats(age=396), lambda: stream.beats("stopped", age=394))
    assert watch().execute(context(asset)) == {"stream": "stream", "drift": []}


def test_a_stream_that_has_failed_says_why(stream: Stream, asset: Store, story: Callable[..., None]) -> None:
    stream.beats()
    story(lambda: stream.beats("failed", message="no space left on /srv"))
    with pytest.raises(StreamDown, match=r"the stream stream failed at 20\d\d-.* UTC: no space left on /srv"):
        watch().execute(context(asset))


def test_one_outage_fails_one_run(
    stream: Stream, asset: Store, story: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    stream.beats(age=40)
    story(
        lambda: None,  # the same heartbeat
        lambda: stream.beats("starting", "b2"),
        lambda: stream.beats("failed", "b2", message="no champion"),
        lambda: stream.beats("running", "c3"),
        lambda: stream.beats("failed", "c3", message="another outage"),
    )
    tries = Store()
    with pytest.raises(StreamDown, match="another outage"):
        watch().execute(context(asset, "failed", tries))
    log = capsys.readouterr().out
    assert log.count("waiting for the stream stream: the stream stream is down") == 1
    assert log.count("waiting for the stream stream: the stream stream failed") == 1
    with pytest.raises(StreamDown, match="another outage"):  # which the retries look at again
        watch().execute(context(asset, "failed", tries))


def test_a_stream_that_was_stopped_is_waited_for(stream: Stream, asset: Store, story: Callable[..., None]) -> None:
    stream.beats("stopped", age=4000)
    story(lambda: stream.beats("running", "b2"), lambda: stream.beats("stopped", "b2"))
    now = context(asset, "success")
    assert watch().execute(now)["drift"] == [] and now["task_state_store"] == {"stream_instance": "b2"}


def test_a_watch_ends_after_its_time(stream: Stream, asset: Store) -> None:
    stream.beats()
    assert watch(0.1).execute(context(asset)) == {"stream": "stream", "drift": []}


def test_the_form_names_the_stream(stream: Stream, asset: Store) -> None:
    other: Any = {"streaming.name": "other"}
    with pytest.raises(StreamDown, match="the stream other has never run"):
        watch().execute(context(asset, **other))
    with pytest.raises(BadInput, match="unknown experiment"):
        watch().execute(context(asset, experiment="none-of-them"))


def test_a_damaged_window_is_named(stream: Stream, asset: Store) -> None:
    stream.beats()
    window, elsewhere = stream.folder / "windows/3-7.json", stream.folder / "elsewhere.json"
    window.write_text('{"first": 3')
    with pytest.raises(AirflowFailException, match=r"windows/3-7\.json describes no window .*: remove it"):
        watch(0.1).execute(context(asset))
    window.rename(elsewhere)
    window.symlink_to(elsewhere)  # as a stage could, to a file that only Airflow may read
    with pytest.raises(AirflowFailException, match=r"windows/3-7\.json describes no window .* is a link"):
        watch(0.1).execute(context(asset))
    window.unlink()
    os.mkfifo(window)
    with pytest.raises(AirflowFailException, match=r"windows/3-7\.json describes no window .* is not a regular file"):
        watch().execute(context(asset))
