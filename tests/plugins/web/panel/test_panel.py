"""The panel in Airflow's real API server: who sees which run, what is shown of it, and what is not believed."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import delete, update
from starlette.testclient import TestClient

from include import tracing
from include.named_experiments import load
from include.runs import DAG_ID, Run
from include.runs import RUN_ID as OF_DAG_RUN
from include.stages import BadInput
from spark_bert.deployment.places import run_folder
from spark_bert.web.panel import dag_runs, evaluation
from spark_bert.web.panel import index as index_module
from spark_bert.web.panel import trace as trace_module
from spark_bert.web.panel.app import PAGES, STATIC
from spark_bert.web.panel.dag_runs import DagRuns
from spark_bert.web.panel.records import Record, read_record
from tests.airflow_home import login
from tests.plugins.web.panel.conftest import BASE, Ask
from tests.plugins.web.panel.runs import HOSTILE, LINES, change_record, commit, let_train, lines, make_run, make_stages

RUN_ID = "manual__2026-11-23T10:00:00+00:00"
OF_A_RUN = ("run", "curves", "trace", "evaluation", "rows")
ROUTES = ("api/runs", "api/models", "api/leaderboards", *(f"api/{route}?run=x" for route in OF_A_RUN))


def shown(ask: Ask, **query: Any) -> list[str]:
    return [row["run"] for row in ask("runs", **query)["rows"]]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nonsense"}, {"Cookie": "_token=nonsense"}])
def test_without_a_login_there_is_only_a_page_that_says_so(
    server: TestClient, home: Path, headers: dict[str, str]
) -> None:
    make_run(home, "finetune", RUN_ID)
    for route in ROUTES:
        answer = server.get(f"{BASE}/{route}", headers=headers)
        assert answer.status_code in (401, 403) and "finetune" not in answer.text
    for page in ("", *PAGES):
        answer = server.get(f"{BASE}/{page}", headers=headers)
        assert answer.status_code in (401, 403) and answer.headers["content-type"].startswith("text/html")
        assert "Your login has ended" in answer.text


def test_a_user_without_a_role_sees_no_run(ask: Ask, home: Path) -> None:
    run = make_run(home, "finetune", RUN_ID)
    answer = ask("runs", login(None))
    assert (answer["rows"], answer["all"], answer["dags"], answer["tasks"]) == ([], 0, [], [])
    for route in OF_A_RUN:
        ask(route, login(None), 404, run=run)


@pytest.mark.usefixtures("only_retrain")
def test_a_user_sees_the_runs_of_the_dags_that_are_theirs(ask: Ask, home: Path) -> None:
    own, other = make_run(home, "retrain", RUN_ID), make_run(home, "finetune", RUN_ID)
    nobodys = make_run(home, "", "by-hand")
    assert shown(ask) == [own]
    for route in OF_A_RUN:
        ask(route, run=own)
        ask(route, dag_id="retrain", run_id=RUN_ID)
        assert other not in json.dumps(ask(route, status=404, run=other))
        ask(route, status=404, dag_id="finetune", run_id=RUN_ID)
        ask(route, status=404, run=nobodys)


@pytest.mark.usefixtures("only_retrain")
def test_a_record_cannot_give_its_run_to_another_dag(ask: Ask, home: Path) -> None:
    run = make_run(home, "finetune", RUN_ID)
    for claim in ({"dag_id": "retrain"}, {"dag_id": "retrain", "run_id": "other"}, {"dag_id": ["retrain"]}):
        change_record(Run(home / "runs" / run), **claim)
        assert shown(ask) == []
        ask("run", status=404, run=run)


def test_an_index_of_a_mapped_task_group_is_a_run_of_its_dag(
    ask: Ask, home: Path, dag_run: Callable[[str, str, str], None], task: Callable[..., None]
) -> None:
    run = make_run(home, "leaderboard", f"{RUN_ID}[3]")
    for index, dag in ((4, ""), (3, "leaderboard")):
        change_record(Run(home / "runs" / run), run_id=RUN_ID, map_index=index)
        assert ask("runs")["rows"][0]["dag_id"] == dag
    assert ask("run", run=run)["files"][0]["href"].endswith(f"/leaderboard/{quote(RUN_ID)}%5B3%5D/evaluate/report.html")
    by_ids = {"dag_id": "leaderboard", "run_id": RUN_ID}
    assert ask("run", **by_ids, map_index="3")["run"] == run
    ask("run", **by_ids, map_index="{MAP_INDEX}", status=404)  # Airflow leaves it so in the page of another task
    dag_run("leaderboard", RUN_ID, "running")
    task("leaderboard", RUN_ID, "evaluate", "success", 3)
    assert ask("run", run=run)["state"] == "done"
    task("leaderboard", RUN_ID, "gate", "queued", 3)
    task("leaderboard", RUN_ID, "package", "queued", 4)
    found = ask("run", run=run)
    assert found["state"] == "running"
    assert [(stage["stage"], stage["state"]) for stage in found["stages"]][-2:] == [
        ("evaluate", "done"), ("gate", "waiting"),
    ]  # fmt: skip


def test_whoever_may_read_all_dags_sees_runs_of_the_command_line(ask: Ask, home: Path) -> None:
    run = make_run(home, "", "by-hand")
    (row,) = ask("runs")["rows"]
    assert (row["run"], row["dag_id"], row["state"]) == (run, "", "done")
    assert ask("run", run=run)["files"] == []  # files of artifacts have addresses by Dag run


def test_airflow_knows_the_dag_of_an_old_record(ask: Ask, home: Path, dag_run: Callable[[str, str, str], None]) -> None:
    run = make_run(home, "finetune", RUN_ID)
    record = Run(home / "runs" / run)
    record.file.write_text(json.dumps({key: value for key, value in record.record().items() if "_id" not in key}))
    assert ask("runs")["rows"][0]["dag_id"] == ""
    newer = make_run(home, "", "another")  # what is not known is asked again when there is a new run
    dag_run("finetune", RUN_ID, "success")
    record.folder.parent.joinpath(newer).rename(record.folder.parent / "renamed")
    assert {row["run"]: row["dag_id"] for row in ask("runs")["rows"]} == {run: "finetune", "renamed": ""}
    assert ask("run", run=run)["run_id"] == RUN_ID


def test_the_table_is_filtered_sorted_and_paged_by_its_address(ask: Ask, home: Path) -> None:
    best = make_run(home, "finetune", "best", 0.9, training__epochs=7)
    worst = make_run(home, "retrain", "worst", 0.4)
    middle = make_run(
        home, "", "middle", 0.5, data__task="SST-2", data__source="files", data__path="x", gate__accuracy=0.5
    )
    unfinished = home / "runs/unfinished"
    unfinished.mkdir()
    for age, run in enumerate((middle, worst, best)):
        os.utime(home / "runs" / run / "run.json", (1e9 - age,) * 2)
    assert shown(ask) == [middle, worst, best, "unfinished"]
    assert shown(ask, sort="score") == [worst, middle, best, "unfinished"]
    assert shown(ask, sort="-score") == [best, middle, worst, "unfinished"]
    assert shown(ask, sort="-training.epochs")[0] == best
    assert shown(ask, sort="nonsense", size=500) == [middle, worst, best, "unfinished"]
    assert shown(ask, sort="-score", size=2, page=2) == [worst, "unfinished"]
    assert shown(ask, dag="retrain") == [worst]
    assert shown(ask, task="SST-2") == [middle]
    assert shown(ask, q="sst-2 MINILM") == [middle]
    assert shown(ask, state="running") == []
    table = ask("runs", columns="run,training.epochs,metrics.accuracy,new.field", dag="finetune")
    assert table["rows"][0]["values"] == [best, 7.0, 0.9, None]
    assert [column["title"] for column in table["columns"]] == ["Run", "training.epochs", "accuracy", "new.field"]
    assert (table["total"], table["all"], table["dags"]) == (1, 4, ["finetune", "retrain"])
    assert {"metrics.accuracy", "training.seed"} <= {choice["key"] for choice in table["choices"]}


@pytest.mark.parametrize("query", ["page=0", "page=-1", "page=x", "size=0", "size=100000"])
def test_a_wrong_page_is_refused(server: TestClient, viewer: dict[str, str], home: Path, query: str) -> None:
    assert server.get(f"{BASE}/api/runs?{query}", headers=viewer).status_code == 422


def test_only_records_that_have_changed_are_read_again(ask: Ask, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [make_run(home, "finetune", f"number-{number}") for number in range(3)]
    read: list[str] = []

    def counted(run: str) -> Record:
        read.append(run)
        return read_record(run)

    monkeypatch.setattr(index_module, "read_record", counted)
    assert sorted(shown(ask)) == sorted(runs) == sorted(read)
    ask("runs")
    ask("runs", sort="score")
    assert len(read) == 3
    change_record(Run(home / "runs" / runs[1]), note="changed")
    ask("runs")
    assert read[3:] == [runs[1]]
    shutil.rmtree(home / "runs" / runs[0])
    assert sorted(shown(ask)) == sorted(runs[1:]) and len(read) == 4


def test_a_run_is_running_while_airflow_says_so(ask: Ask, home: Path, dag_run: Callable[[str, str, str], None]) -> None:
    run = make_run(home, "finetune", RUN_ID)
    let_train(home, run, lines(*LINES))
    assert ask("run", run=run)["state"] == "done"  # the record of work under way is what a killed try has left
    dag_run("finetune", RUN_ID, "running")
    assert (ask("run", run=run)["state"], ask("runs")["running"]) == ("running", 1)
    dag_run("finetune", "new", "queued")
    new = ask("run", dag_id="finetune", run_id="new")
    assert (new["state"], new["about"], new["stages"]) == ("running", [], [])  # its first stage has not started
    killed = make_run(home, "finetune", "killed")
    dag_run("finetune", "killed", "failed")
    assert ask("run", run=killed)["state"] == "failed"  # whatever killed it has left nothing in the record


def test_a_run_that_a_person_has_marked_as_failed_was_stopped(
    ask: Ask, home: Path, dag_run: Callable[[str, str, str], None], task: Callable[..., None]
) -> None:
    run = make_run(home, "finetune", RUN_ID)
    dag_run("finetune", RUN_ID, "failed")
    task("finetune", RUN_ID, "package", "skipped")
    assert (ask("run", run=run)["state"], ask("runs")["rows"][0]["state"]) == ("stopped", "stopped")
    task("finetune", RUN_ID, "predict", "upstream_failed")  # a task before it has failed by itself
    assert ask("run", run=run)["state"] == "failed"


def test_a_run_whose_experiment_was_refused_says_why(ask: Ask, home: Path) -> None:
    told = {DAG_ID: "finetune", OF_DAG_RUN: RUN_ID}
    folder = run_folder("finetune", RUN_ID)
    Run(folder).fail("validate", BadInput("unknown key training.epoch"), experiment=None, told=told)
    (row,) = ask("runs")["rows"]
    assert (row["run"], row["dag_id"], row["state"]) == (folder.name, "finetune", "failed")
    assert ask("run", run=folder.name)["stages"][0]["message"] == "unknown key training.epoch"


def test_only_dag_runs_that_have_changed_are_read_again(
    dag_run: Callable[[str, str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        dag_run("finetune", f"failed-{number}", "failed")
    change_dag_runs(update(DagRun).values(updated_at=datetime.now(UTC) - timedelta(days=1)))
    read: list[int] = []
    execute = dag_runs._execute

    def counted(statement: Any) -> list[Any]:
        rows = execute(statement)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(dag_runs, "_execute", counted)
    known = DagRuns()
    assert {run.state for run in known.states().values()} == {"failed"}
    dag_run("finetune", "new", "queued")
    assert known.states()[dag_runs.folder_name("finetune", "new")].state == "running"
    for _ in range(3):
        read.clear()
        assert len(known.states()) == 10 and sum(read) <= 3
    change_dag_runs(update(DagRun).where(DagRun.run_id == "failed-3").values(state="success"))
    assert known.states()[dag_runs.folder_name("finetune", "failed-3")].state == "success"
    change_dag_runs(delete(DagRun).where(DagRun.run_id.in_(["failed-4", "new"])))
    assert len(known.states()) == 8


def change_dag_runs(statement: Any) -> None:
    with create_session() as session:
        session.execute(statement)


def test_the_time_of_a_run_leaves_out_its_pauses(ask: Ask, home: Path) -> None:
    run = make_run(home, "finetune", RUN_ID)
    stages = Run(home / "runs" / run).record()["stages"]
    times = {"train": (1000.0, 1100.0), "evaluate": (9000.0, 9030.0)}
    changed = {name: {**stages[name], "started": began, "ended": ended} for name, (began, ended) in times.items()}
    overlapping = {**changed["train"], "key": "", "started": 1050.0, "ended": 1120.0}
    change_record(Run(home / "runs" / run), stages={**changed, "validate": overlapping})
    assert ask("runs", columns="seconds")["rows"][0]["values"] == [150.0]
    assert [stage["stage"] for stage in ask("run", run=run)["stages"]] == ["train", "validate", "evaluate"]


def test_a_run_that_took_in_nothing_but_a_malformed_file_was_refused(ask: Ask, home: Path) -> None:
    refused = {"new": False, "refused": {"bad.csv": "drop/bad.csv has no column 'label': correct it"}}
    run = make_stages(home, "retrain", RUN_ID, 1000, {"ingest": refused})
    page = ask("run", run=run)
    assert (page["state"], page["stages"][0]["state"]) == ("refused", "refused")
    assert page["stages"][0]["message"] == refused["refused"]["bad.csv"]  # type: ignore[index]
    other = make_stages(home, "retrain", "other", 1000, {"ingest": {**refused, "new": True}})
    assert ask("run", run=other)["state"] == "done" and "bad.csv" in ask("run", run=other)["stages"][0]["message"]


@pytest.mark.parametrize("query", [{"q": "a " * 300}, {"columns": "x," * 15_000}, {"sort": "x" * 999}])
def test_a_question_that_would_keep_the_server_busy_is_refused(
    server: TestClient, viewer: dict[str, str], home: Path, query: dict[str, str]
) -> None:
    run = make_run(home, "finetune", RUN_ID)
    route = "rows" if "q" in query else "runs"
    assert server.get(f"{BASE}/api/{route}", params={**query, "run": run}, headers=viewer).status_code == 422


def test_the_table_has_each_column_once_and_not_too_many(ask: Ask, home: Path) -> None:
    make_run(home, "finetune", RUN_ID)
    assert [one["key"] for one in ask("runs", columns="score,data.task,score")["columns"]] == ["score", "data.task"]
    assert "At most 300" in ask("runs", status=400, columns=",".join(map(str, range(301))))["detail"]


def test_texts_and_files_of_rows_have_a_limit(ask: Ask, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_CHARACTERS", 4)
    run = make_run(home, "finetune", RUN_ID)
    assert [row["texts"] for row in ask("rows", run=run)["rows"]][1] == ["a fi"]
    monkeypatch.setattr(evaluation, "_LARGEST", 10)
    evaluation.dev_rows.cache_clear()
    assert ask("rows", run=run)["rows"] == []


def test_a_run_of_the_command_line_is_running_while_it_writes(ask: Ask, home: Path) -> None:
    (home / "runs/by-hand").mkdir(parents=True)
    curves = let_train(home, "by-hand", lines(*LINES[:2]))
    (stage,) = ask("run", run="by-hand")["stages"]
    assert (stage["stage"], stage["state"], stage["planned_steps"]) == ("train", "running", 8)
    first = ask("curves", run="by-hand")
    assert (first["lines"], first["stage"], first["again"]) == ([*LINES[:2]], "train", True)
    let_train(home, "by-hand", curves.read_text(), age=4000)
    assert ask("run", run="by-hand")["state"] == "stopped"


def test_curves_are_read_bit_by_bit(ask: Ask, home: Path) -> None:
    (home / "runs/live").mkdir(parents=True)
    curves = let_train(home, "live", lines(LINES[0]) + '{"step": 2')

    def more(since: Any) -> Any:
        return ask("curves", run="live", source=since["source"], offset=since["offset"])

    first = more({"source": "", "offset": 0})
    assert first["lines"] == [LINES[0]]  # half a line comes when it is whole
    curves.write_text(lines(*LINES))
    second = more(first)
    assert (second["lines"], second["again"]) == ([*LINES[1:]], False)
    assert more(second)["lines"] == []
    curves.write_text(lines(LINES[0]))  # resumed from a checkpoint
    third = more(second)
    assert (third["lines"], third["again"]) == ([LINES[0]], True)
    curves.write_text(lines(LINES[0]) + '{"step": 2, "loss": NaN, "x": 1e999}\nnonsense\n[7]\n')
    assert more(third)["lines"] == [{"step": 2, "loss": None, "x": None}]


def test_the_curves_of_a_finished_run_are_those_of_its_artifact(ask: Ask, home: Path) -> None:
    run = make_run(home, "finetune", RUN_ID)
    answer = ask("curves", run=run, source="checkpoints/ffffffffffffffff", offset=10)
    assert (answer["lines"], answer["again"], answer["source"][:10]) == ([*LINES], True, "artifacts/")
    run = make_run(home, "", "without")
    shutil.rmtree(home / "artifacts/train")
    assert ask("curves", run=run, source="artifacts/x") == {
        "source": "", "stage": "", "again": True, "lines": [], "offset": 0, "more": False,
    }  # fmt: skip


def record_try(folder: Path, number: int, fails: bool = False) -> None:
    """Let a stage's process write the spans of a try."""
    origin = tracing.Origin("0af7651916cd43dd8448eb211c80319c", f"{number:016x}", {"try": str(number)})
    with suppress(RuntimeError), tracing.recording(folder / "traces/train.jsonl", origin, "train"):
        with tracing.span("load"):
            pass
        with tracing.span("training", rank=0):
            tracing.add("forward", number * 10**9, (number + 60) * 10**9, seconds=12.5, count=26)
            if fails:
                raise RuntimeError(HOSTILE)


def rows_of(answer: Any) -> list[tuple[int, str, int]]:
    return [(row["depth"], row["name"], row["count"]) for stage in answer["stages"] for row in stage["rows"]]


def test_the_trace_of_a_run(ask: Ask, home: Path) -> None:
    run = make_run(home, "finetune", RUN_ID)
    assert ask("trace", run=run) == {"stages": []}
    record_try(home / "runs" / run, 1, fails=True)
    record_try(home / "runs" / run, 2)
    answer = ask("trace", run=run)
    assert rows_of(answer) == [(0, "train", 2), (1, "load", 2), (1, "training", 2), (2, "forward", 2)]
    (stage,) = answer["stages"]
    assert (stage["stage"], stage["trace"][:4], stage["left_out"], stage["cut"]) == ("train", "0af7", 0, False)
    training, forward = stage["rows"][2:]
    assert [span["error"] for span in training["spans"]] == [HOSTILE, None]
    assert [span["attributes"] for span in training["spans"]] == [{"try": "1", "rank": 0}, {"try": "2", "rank": 0}]
    assert (forward["seconds"], forward["spans"][0]["seconds"], forward["spans"][0]["start"]) == (25.0, 12.5, 1.0)
    assert forward["spans"][1]["end"] == 62.0


def test_of_many_spans_the_failed_and_the_longest_are_drawn(
    ask: Ask, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(home, "", "run")
    file = home / "runs" / run / "traces/preprocess.jsonl"
    with tracing.recording(file, tracing.Origin("0" * 32, "", {}), "preprocess"):
        for number in range(50):
            tracing.add("Spark: job", 10**9, 10**9 + number, "failed" if number == 7 else None, number=number)
    monkeypatch.setattr(trace_module, "_DRAWN", 4)
    (stage,) = ask("trace", run=run)["stages"]
    _, jobs = stage["rows"]
    assert sorted(span["attributes"]["number"] for span in jobs["spans"]) == [7, 48, 49]
    assert (jobs["count"], stage["left_out"], stage["cut"]) == (50, 47, False)
    monkeypatch.setattr(trace_module, "_MOST", 1000)
    (stage,) = ask("trace", run=run)["stages"]
    assert rows_of({"stages": [stage]})[0] == (0, "preprocess", 1) and stage["cut"]


SPAN = {
    "traceId": "0" * 32, "spanId": "1" * 16, "parentSpanId": "1" * 16, "name": "train", "attributes": [], "status": {},
    "startTimeUnixNano": "1", "endTimeUnixNano": "2",
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"name": 7}, {"spanId": None}, {"startTimeUnixNano": "x"}, {"startTimeUnixNano": "3"}, {"status": []},
        {"endTimeUnixNano": 1e999}, {"endTimeUnixNano": "9" * 400}, {"attributes": [{"key": "x", "value": {}}]},
        {"attributes": [{"key": "x", "value": {"arrayValue": {"values": []}}}]},
    ],
)  # fmt: skip
def test_a_damaged_span_hides_no_other(ask: Ask, home: Path, change: dict[str, Any]) -> None:
    run = make_run(home, "", "run")
    spans = [
        {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [one]}]}]}
        for one in (SPAN, SPAN | change)
    ]
    file = home / "runs" / run / "traces/train.jsonl"
    file.parent.mkdir()
    file.write_text(f"{lines(*spans)}nonsense\n[7]\n{'[' * 99_999}\n\xff\n{json.dumps(spans[0])[:50]}")
    # The span says that it is part of itself.
    assert rows_of(ask("trace", run=run)) == [(trace_module._DEEPEST - 1, "train", 1)]


def test_no_link_leads_to_a_trace(ask: Ask, home: Path) -> None:
    run = make_run(home, "", "run")
    (home / "elsewhere").mkdir()
    record_try(home / "elsewhere", 1)
    for place in ("traces", "traces/train.jsonl"):
        link = home / "runs" / run / place
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(home / "elsewhere" / place)
        assert ask("trace", run=run) == {"stages": []}
        link.unlink()


def test_a_cell_of_the_confusion_matrix_leads_to_its_rows(ask: Ask, home: Path) -> None:
    run = make_run(home, "finetune", RUN_ID)
    assert ask("evaluation", run=run)["confusion"] == [[1, 1], [1, 1]]
    assert [row["row"] for row in ask("rows", run=run)["rows"]] == [3, 0, 1, 2]  # the surest first
    (row,) = ask("rows", run=run, label="negative", prediction="positive")["rows"]
    assert (row["row"], row["texts"], row["wrong"], row["confidence"]) == (1, [HOSTILE], True, 0.8)
    assert [row["row"] for row in ask("rows", run=run, wrong="true")["rows"]] == [3, 1]
    assert [row["row"] for row in ask("rows", run=run, q="Dull not")["rows"]] == [3]
    assert ask("rows", run=run, page=2) == {"rows": [], "total": 4, "page": 2, "size": 50}


def test_rows_have_slices_and_may_have_several_labels_or_a_score(ask: Ask, home: Path) -> None:
    run, experiment = Run(home / "runs/run"), load("movies")
    several = {"row": 0, "text": "a", "label": ["x", "y"], "prediction": [], "correct": False, "slices": ["label:x"]}
    score = {"row": 1, "text": "a", "text2": HOSTILE, "label": 2.0, "prediction": 4.5, "error": 2.5, "slices": []}
    commit(home, run, experiment, "evaluate", {}, {"rows.jsonl": lines(several, score)})
    first, second = ask("rows", run="run")["rows"]
    assert (first["texts"], first["error"], first["wrong"]) == (["a", HOSTILE], 2.5, False)
    assert (second["label"], second["prediction"], second["wrong"]) == ("x, y", "", True)
    assert ask("rows", run="run", slice="label:x")["rows"] == ask("rows", run="run", wrong="true")["rows"] == [second]


def test_explained_rows_say_what_each_word_contributes_to_each_predicted_label(ask: Ask, home: Path) -> None:
    words = [
        {"word": "a", "contribution": -0.25},
        {"word": HOSTILE, "text": 2, "contribution": {"x": 0.5, "y": "not a number"}},
    ]
    row = {"row": 0, "text": "a", "label": ["x"], "prediction": ["x"], "slices": [], "explanation": words}
    commit(home, Run(home / "runs/run"), load("movies"), "evaluate", {}, {"rows.jsonl": lines(row)})
    assert ask("rows", run="run")["rows"][0]["explanation"] == [
        {"word": "a", "text": 1, "contributions": {"": -0.25}},
        {"word": HOSTILE, "text": 2, "contributions": {"x": 0.5}},
    ]


def test_the_page_of_a_run(ask: Ask, home: Path) -> None:
    run = make_run(home, "finetune", RUN_ID, 0.75, training__epochs=7)
    record = Run(home / "runs" / run)
    stages = record.record()["stages"]
    for stage, files in (("validate", {"data_docs": "docs/index.html"}), ("publish", {"card": "README.md"})):
        stages[stage] = {"key": "1" * 16, "exit_code": 0, "result": {"files": files}}
    stages["train"] |= {"started": 1e9, "ended": 1e9 + 60}
    stages["evaluate"] |= {"started": "2001-09-09T01:47:40+00:00", "ended": 1e9 + 65, "reused": True, "exit_code": 3}
    change_record(record, stages=stages)
    answer = ask("run", run=run)
    assert answer["fields"]["training.epochs"] == 7.0 and (answer["score"], answer["metric"]) == (0.75, "accuracy")
    _, train, evaluate, _ = answer["stages"]
    assert (train["state"], train["started"], train["ended"], train["reused"]) == ("done", 1e9, 1e9 + 60, False)
    assert (evaluate["state"], evaluate["started"], evaluate["reused"]) == ("refused", 1e9 + 60, True)
    assert [(file["title"], "/".join(file["href"].split("/")[5:])) for file in answer["files"]] == [
        ("Data Docs", "validate/docs/index.html"),
        ("Report", "evaluate/report.html"),
        ("Model card", "publish/README.md"),
    ]
    assert answer["state"] == ask("runs")["rows"][0]["state"] == "refused"


def test_hostile_names_are_only_ever_json(server: TestClient, viewer: dict[str, str], home: Path) -> None:
    name = HOSTILE.replace("/", "")
    (home / "runs" / name).mkdir(parents=True)
    (home / "runs" / name / "run.json").write_text(json.dumps({"stages": {"train": {"exit_code": 2, "message": name}}}))
    answer = server.get(f"{BASE}/api/run", params={"run": name}, headers=viewer)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (answer.json()["run"], answer.json()["stages"][0]["message"]) == (name, name)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"\xff", b"[" * 99999, b'{"stages": 7}', b'{"stages": {"train": 7}}',
        b'{"stages": {"train": {"key": [], "exit_code": {}, "result": {"metric": [], "best": {}}}}}',
        b'{"stages": {"train": {"started": "x", "ended": 1e999, "result": []}}, "experiment": {"data": {"task": []}}}',
        b'{"stages": {"evaluate": {"key": "..", "result": {"metrics": {"accuracy": "high"}, "files": [1]}}}}',
        b'{"stages": {}, "dag_id": 7, "run_id": null, "experiment": [1]}',
    ],
)  # fmt: skip
def test_a_damaged_record_hides_no_other(ask: Ask, home: Path, text: bytes) -> None:
    good, bad = make_run(home, "", "good"), make_run(home, "", "bad")
    (home / "runs" / bad / "run.json").write_bytes(text)
    for sort in ("score", "-seconds", "-data.task", "metric"):
        assert set(shown(ask, sort=sort)) == {good, bad}
    for route in OF_A_RUN:
        ask(route, run=bad)


@pytest.mark.parametrize(
    "work", ["nonsense", "[]", '{"progress": 7, "since": "x"}', '{"progress": "../..", "planned_steps": "<b>"}']
)
def test_damaged_work_under_way_hides_nothing(ask: Ask, home: Path, work: str) -> None:
    run = make_run(home, "", "run")
    let_train(home, run, "")
    (home / "runs" / run / "at-work/train.json").write_text(work)
    assert ask("runs")["all"] == 1
    assert ask("run", run=run)["run"] == run and ask("curves", run=run)["lines"] == [*LINES]


@pytest.mark.parametrize(
    "place", ["runs/{run}", "runs/{run}/run.json", "artifacts/evaluate", "artifacts/evaluate/{key}"]
)
def test_links_lead_nowhere(ask: Ask, home: Path, place: str) -> None:
    run = make_run(home, "finetune", RUN_ID)
    key = Run(home / "runs" / run).record()["stages"]["evaluate"]["key"]
    there = home / place.format(run=run, key=key)
    there.rename(home / "elsewhere")
    there.symlink_to(home / "elsewhere")
    assert run not in shown(ask) or ask("rows", run=run)["total"] == 0
    for route in ("evaluation", "rows"):
        answer = ask(route, run=run) if run in shown(ask) else {"total": 0}
        assert answer in ({}, {"total": 0}) or answer["total"] == 0


@pytest.mark.parametrize("run", ["", ".", "..", "../runs/run", "/etc", "a/b", "\x00", "x" * 5000, ".hidden"])
def test_no_other_folder_is_a_run(ask: Ask, home: Path, run: str) -> None:
    (home / "runs/.hidden").mkdir(parents=True)
    ask("run", status=404, run=run)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_is_read_only(server: TestClient, viewer: dict[str, str], home: Path, method: str) -> None:
    for route in (*ROUTES, *PAGES, "static/style.css"):
        assert server.request(method, f"{BASE}/{route}", headers=viewer).status_code == 405


def test_pages_load_nothing_from_elsewhere_and_run_nothing_that_stands_in_them(
    server: TestClient, viewer: dict[str, str]
) -> None:
    for page in (*PAGES, "static/style.css", "api/runs", "nothing", "static/nothing.js"):
        answer = server.get(f"{BASE}/{page}", headers=viewer)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src")
        assert "unsafe" not in policy and "http" not in policy and "frame-ancestors 'self'" in policy
    assert server.get(f"{BASE}/nothing", headers=viewer).status_code == 404


def test_each_page_has_its_title_and_script(server: TestClient, viewer: dict[str, str]) -> None:
    for page, title in PAGES.items():
        answer = server.get(f"{BASE}/{page}", headers=viewer)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert f"<title>{title} · Quality</title>" in answer.text
        assert f'<script type="module" src="static/{page}.js"></script>' in answer.text


def test_the_files_of_the_pages_are_small_and_plain() -> None:
    files = {file.name: file.read_text() for file in STATIC.iterdir()}
    assert sum(file.stat().st_size for file in STATIC.iterdir()) < 140_000
    assert {f"{page}.js" for page in PAGES} <= files.keys()
    for name, text in files.items():
        found = re.findall(r"https?://[^'\"` >)]+", text)
        assert set(found) <= {"http://www.w3.org/2000/svg"}, name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), name
        if name.endswith(".html"):
            assert not re.search(r"<script(?![^>]* src=)|<style| on\w+=| style=", text), name


def test_airflow_shows_the_panel(server: TestClient, viewer: dict[str, str]) -> None:
    plugins = server.get("/api/v2/plugins", headers=login("admin")).json()["plugins"]
    (plugin,) = [plugin for plugin in plugins if plugin["name"] == "spark_bert"]
    views = {view["destination"]: view["href"] for view in plugin["external_views"]}
    assert set(views) == {"nav", "dag_run", "task_instance"}
    addresses = {href.replace("{DAG_ID}", "finetune").replace("{RUN_ID}", "x") for href in views.values()}
    for address in (*addresses, *(card["bundle_url"] for card in plugin["react_apps"])):
        assert server.get(address, headers=viewer).status_code == 200
