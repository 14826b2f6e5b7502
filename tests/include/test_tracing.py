"""Spans: what a stage's process writes, and what remains of them when it is killed or tried again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from include import tracing
from include.tracing import Origin, recording, span
from tests.spans import attributes, read_spans

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run whose stages no Airflow task starts."""
    for variable in (tracing.TRACEPARENT, *tracing.VARIABLES.values()):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "runs/first").mkdir(parents=True)
    return tmp_path / "runs/first"


@pytest.fixture
def file(folder: Path) -> Path:
    return folder / tracing.FOLDER / "train.jsonl"


def names(file: Path) -> list[str]:
    return [span["name"] for span in read_spans(file)]


def test_spans_form_a_tree_below_the_airflow_task(folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.TRACEPARENT, f"00-{TRACE}-{PARENT}-01")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "finetune")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_RUN_ID", "manual__1")
    monkeypatch.setenv("AIRFLOW_CTX_TRY_NUMBER", "2")
    before = time.time_ns()
    with recording(file, Origin.of_stage(folder, "train"), "train") as root:
        with span("load", rows=3):
            tracing.add("Spark: count", before, before + 5, tasks=2)
        root.attributes["key"] = "0123"
    job, load, train = read_spans(file)
    assert [one["name"] for one in (job, load, train)] == ["Spark: count", "load", "train"]
    assert {one["traceId"] for one in (job, load, train)} == {TRACE}
    assert (train["parentSpanId"], load["parentSpanId"], job["parentSpanId"]) == (
        PARENT,
        train["spanId"],
        load["spanId"],
    )
    assert before <= int(train["startTimeUnixNano"]) <= int(load["startTimeUnixNano"])
    assert int(load["endTimeUnixNano"]) <= int(train["endTimeUnixNano"]) <= time.time_ns()
    assert attributes(load) == {"rows": 3} and attributes(train) == {"key": "0123"}
    told = {"dag_id": "finetune", "run_id": "manual__1", "try": "2"}
    assert attributes(train["resource"]).items() >= {
        "service.name": "spark-bert", "run": "first", "stage": "train", **told
    }.items()  # fmt: skip
    assert train["resource"] == job["resource"] and attributes(train["resource"])["host.name"]


def test_what_was_written_can_be_read(folder: Path, file: Path) -> None:
    with pytest.raises(ValueError, match="no"), recording(file, Origin.of_stage(folder, "train"), "train"):
        tracing.add("job", 1, 6, tasks=2, seconds=0.5, cached=True, at="here")
        raise ValueError("no")
    job, train = (tracing.read(line)[0] for line in file.read_bytes().splitlines())
    assert (job.name, job.start, job.end, job.error, job.parent) == ("job", 1, 6, None, train.id)
    assert job.attributes == {"tasks": 2, "seconds": 0.5, "cached": True, "at": "here"}
    assert (train.error, train.trace, train.resource["stage"]) == ("no", job.trace, "train")
    for damaged in (file.read_bytes()[:99], b"[]", b'{"resourceSpans": [{"resource": 1}]}', b"[" * 99_999):
        with pytest.raises(ValueError):
            tracing.read(damaged)


def test_stages_that_are_started_by_hand_share_the_trace_of_their_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Origin.of_stage(folder, "validate"), Origin.of_stage(folder, "train")
    assert one.trace == two.trace and len(one.trace) == 32 and one.parent == ""
    assert Origin.of_stage(folder.parent / "second", "train").trace != one.trace
    monkeypatch.setenv(tracing.TRACEPARENT, "no trace context")
    assert Origin.of_stage(folder, "train") == two


def test_what_fails_says_why(folder: Path, file: Path) -> None:
    with pytest.raises(SystemExit), recording(file, Origin.of_stage(folder, "train"), "train"):
        with pytest.raises(ValueError, match="no such row"), span("load"):
            raise ValueError("no such row")
        raise SystemExit(143)
    load, train = read_spans(file)
    assert load["status"] == {"code": 2, "message": "no such row"}
    assert train["status"] == {"code": 2, "message": "SystemExit(143)"}


def test_a_thread_belongs_to_the_stage(folder: Path, file: Path) -> None:
    def work() -> None:
        with span("in a thread"):
            pass

    with recording(file, Origin.of_stage(folder, "train"), "train"), span("load"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    inner, _, train = read_spans(file)
    assert inner["parentSpanId"] == train["spanId"]


#: Ends a span, begins another, and waits to be killed.
KILLED = """
import sys, time
from pathlib import Path
from include.tracing import Origin, recording, span
with recording(Path(sys.argv[1]), Origin.of_stage(Path("runs/first"), "train"), "train"):
    with span("load"):
        pass
    with span("training"):
        print("begun", flush=True)
        time.sleep(600)
"""


def test_of_a_killed_try_the_spans_that_had_ended_remain(folder: Path, file: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGKILL)
    assert names(file) == ["load"]
    with recording(file, Origin.of_stage(folder, "train"), "train"):
        pass
    assert names(file) == ["load", "train"]


def test_another_process_adds_to_the_current_span(folder: Path, file: Path, tmp_path: Path) -> None:
    origin, ranks = tmp_path / "origin.json", tmp_path / "rank-0.jsonl"
    with recording(file, Origin.of_stage(folder, "train"), "train"):
        with span("ranks"):
            tracing.hand_over(origin)
        with recording(ranks, Origin.read(origin), "rank 0"):
            pass
        tracing.take_over(ranks)
        tracing.take_over(tmp_path / "rank-1.jsonl")  # that one was lost
    outer, rank, train = read_spans(file)
    assert rank["parentSpanId"] == outer["spanId"] and outer["parentSpanId"] == train["spanId"]
    assert rank["traceId"] == train["traceId"] and rank["resource"] == train["resource"]
    assert not ranks.exists()


@pytest.mark.parametrize("place", ["a file", "a link"])
def test_a_trace_that_cannot_be_written_fails_nothing(place: str, folder: Path, tmp_path: Path) -> None:
    file = folder / tracing.FOLDER / "train.jsonl"
    if place == "a file":
        file.parent.touch()
    else:
        file.parent.mkdir()
        file.symlink_to(tmp_path / "elsewhere")
    with recording(file, Origin.of_stage(folder, "train"), "train"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_where_nothing_records_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with span("load") as begun:
        begun.error = "told to nobody"
    tracing.add("phase", 1, 2)
    tracing.hand_over(tmp_path / "origin.json")
    assert not tracing.is_recording() and list(tmp_path.iterdir()) == []


def test_every_kind_of_value_has_its_field() -> None:
    values: dict[str, Any] = {"text": "a", "yes": True, "count": 3, "seconds": 0.5}
    fields = [pair["value"] for pair in tracing._attributes(values)]
    assert fields == [{"stringValue": "a"}, {"boolValue": True}, {"intValue": "3"}, {"doubleValue": 0.5}]
