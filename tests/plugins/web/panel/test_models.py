"""The page of the models: champions, their history, and leaderboards, as the records of runs tell them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from include.runs import Run
from tests.airflow_home import login
from tests.plugins.web.panel.conftest import Ask
from tests.plugins.web.panel.retraining import MODEL, answer, kept, promoted, retrain, roll_back, try_out
from tests.plugins.web.panel.runs import HOSTILE, change_record, make_run, make_stages

RUN_ID = "manual__2026-11-23T10:00:00+00:00"


def told(model: dict[str, Any]) -> list[tuple[str, str]]:
    """What has happened to which version, the newest first."""
    return [(event["kind"], event["version"]) for event in model["events"]]


def test_a_model_has_a_champion_and_a_history_with_every_run(ask: Ask, home: Path) -> None:
    first = retrain(home, "week-1", 1e9, "1", outcome="first", promotion=promoted("1"))
    worse = retrain(home, "week-2", 1e9 + 1000, champion="1", accuracy=0.6, outcome="worse")
    asked = retrain(home, "week-3", 1e9 + 2000, "2", "1", promotion=promoted("2", "ann", "1"))
    try_out(home, asked, "2", "1")
    os.utime(home / "runs" / asked / "trial.json", (1e9 + 2022,) * 2)
    answer(home, asked, "approved", "ann", "2001-09-09T02:20:25+00:00")  # 1e9 + 2025
    back = roll_back(home, "back", 1e9 + 3000, "1", "2")
    make_run(home, "finetune", RUN_ID)
    (model,) = ask("models")["models"]
    assert (model["model"], model["metric"], model["total"]) == (MODEL, "accuracy", 8)
    assert told(model) == [
        ("rollback", "1"), ("promotion", "2"), ("approval", "2"), ("trial", "2"), ("challenge", "2"),
        ("challenge", ""), ("promotion", "1"), ("challenge", "1"),
    ]  # fmt: skip
    champion = model["champion"]
    assert (champion["version"], champion["by"], champion["time"], champion["score"]) == (
        "1",
        "rollback",
        1e9 + 3000,
        0.75,
    )
    assert champion["made_by"] == {"run": first, "dag_id": "retrain", "run_id": "week-1"}
    assert [(reign["version"], reign["time"]) for reign in model["reigns"]] == [
        ("", 1e9), ("1", 1e9 + 30), ("2", 1e9 + 2030), ("1", 1e9 + 3000)
    ]  # fmt: skip
    rollback, promotion, approval, trial, challenge, refused, *_ = model["events"]
    assert (rollback["left"], rollback["run"], promotion["replaces"], promotion["by"]) == ("2", back, "1", "ann")
    assert (approval["decision"], approval["by"], trial["same"], trial["texts"]) == ("approved", "ann", 970, 1000)
    assert (challenge["run"], challenge["interval"], challenge["metrics"]["champion"]) == (asked, [-0.01, 0.11], 0.75)
    assert challenge["href"].endswith("/runs/retrain/week-3/challenge/challenge.html")
    assert (refused["run"], refused["passed"], refused["reasons"]) == (
        worse,
        False,
        ["accuracy is below the champion's"],
    )
    assert [score for _, score in model["challengers"]] == [0.8, 0.6, 0.8]
    assert ask("models", login(None)) == {"models": []}


def test_a_champion_that_no_run_has_made_is_known_from_when_it_was_seen(ask: Ask, home: Path) -> None:
    retrain(home, "one", 1e9, "8", "7", promotion=kept("7"))
    retrain(home, "two", 1e9 + 1000, "", "7", outcome="worse")
    (model,) = ask("models")["models"]
    champion = model["champion"]
    assert (champion["version"], champion["by"], champion["time"], champion["score"]) == ("7", "seen", 1e9, 0.75)
    assert champion["made_by"] is None
    assert model["events"][1]["kind"] == "promotion" and model["events"][1]["promoted"] is False


def test_a_run_that_waits_for_a_person_is_part_of_the_history(
    ask: Ask, home: Path, dag_run: Callable[[str, str, str], None], task: Callable[..., None]
) -> None:
    run = retrain(home, RUN_ID, 1e9, "2", "1")
    dag_run("retrain", RUN_ID, "running")
    assert told(ask("models")["models"][0]) == [("challenge", "2")]
    task("retrain", RUN_ID, "approve", "awaiting_input")
    waiting, _ = ask("models")["models"][0]["events"]
    assert (waiting["kind"], waiting["decision"], waiting["version"]) == ("approval", "waiting", "2")
    try_out(home, run, "2", "1")  # beside the record, which has not changed
    assert "trial" in dict(told(ask("models")["models"][0]))


def test_a_long_history_is_shown_of_one_model_at_a_time(ask: Ask, home: Path) -> None:
    for week in range(15):
        retrain(home, f"week-{week}", 1e9 + 1000 * week, champion="1", outcome="worse")
    retrain(home, "other", 1e9 - 1000, "1", outcome="first", model="spark-bert-other")
    weekly, other = ask("models")["models"]
    assert (weekly["model"], len(weekly["events"]), weekly["total"], other["total"]) == (MODEL, 12, 15, 1)
    (weekly,) = ask("models", model=MODEL)["models"]
    assert len(weekly["events"]) == 15
    assert ask("models", model="nothing") == {"models": []}


@pytest.mark.usefixtures("only_retrain")
def test_events_of_other_dags_are_not_shown(ask: Ask, home: Path) -> None:
    retrain(home, "week-1", 1e9, "1", outcome="first", promotion=promoted("1"))
    roll_back(home, "back", 1e9 + 1000, "0", "1")
    (model,) = ask("models")["models"]
    assert model["champion"]["version"] == "1" and "back" not in json.dumps(model)


def test_hostile_names_and_damaged_results_hide_nothing(ask: Ask, home: Path) -> None:
    good = retrain(home, "good", 1e9, "1", outcome="first", promotion=promoted("1", HOSTILE))
    (home / "runs" / good / "trial.json").write_text("[" * 9999)
    answer(home, good, "approved", "ann", "2001-09-09T02:20:25+00:00")
    (home / "runs" / good / "decision.json").rename(home / "elsewhere.json")
    (home / "runs" / good / "decision.json").symlink_to(home / "elsewhere.json")
    for number, damage in enumerate(
        ([], {}, {"model": 7, "version": "1"}, {"model": MODEL, "version": []}, {"passed": "x", "metrics": [1]})
    ):
        run = Run(home / "runs" / retrain(home, f"bad-{number}", 1e9, "1", "1", promotion=kept("1")))
        stages = run.record()["stages"]
        for entry in stages.values():
            entry["result"] = damage
        change_record(run, stages=stages)
    name = HOSTILE.replace("/", "")
    retrain(home, "hostile", 1e9 + 1000, "1", outcome="first", promotion=promoted("1"), model=name)
    found, other = ask("models")["models"]
    assert found["model"] == name and told(other) == [("promotion", "1"), ("challenge", "1")]
    assert other["events"][0]["by"] == HOSTILE


def compared(home: Path, run_id: str, at: float, *tasks: dict[str, Any]) -> str:
    """Let a run of the Dag leaderboard have compared models, and return the name of its folder."""
    best = {task["task"]: task["rows"][0]["name"] for task in tasks}
    files = {"leaderboard": "leaderboard.html", "summary": "leaderboard.json", "markdown": "leaderboard.md"}
    summary = {"tasks": tasks, "contradictions": ["122 rows/s, not 1,842"], "warnings": ["the run other is left out"]}
    content = {"leaderboard.json": json.dumps(summary), "leaderboard.html": "<h1>"}
    result = {"runs": 1, "best": best, "warnings": summary["warnings"], "files": files}
    return make_stages(home, "leaderboard", run_id, at, {"leaderboard": result}, content)


def board(task: str, runs: list[str], name: str = "tfidf", papers: bool = False) -> dict[str, Any]:
    """What leaderboard.json says of a task with two models, the second of which was hardly measured."""
    first = {
        "name": name, "model": "tfidf", "seeds": [1, 2], "runs": runs, "metric": 0.83, "interval": [0.81, 0.85],
        "interval_over": "seeds", "seconds": 81.3, "training_rows_per_second": 104.7, "labeling_rows_per_second": 12.5,
        "size": 4231478.0, "memory": 627716096.0, "p": None,
    }  # fmt: skip
    second = {key: [] if key in ("seeds", "runs") else None for key in first} | {"name": "textcnn", "p": 0.03}
    second |= {"interval_over": "dev rows", "metric": math.nan}
    claims = [
        {"table": "table 1", "name": "MLlib", "value": 0.859, "like": ["tfidf"], "ours": first},
        {"table": "table 1", "name": "Horovod", "value": 0.912, "like": [], "ours": None},
    ]
    return {"task": task, "metric": "accuracy", "rows": [first, second], "papers": claims if papers else []}


def test_the_newest_leaderboard_of_each_task_is_shown_and_older_ones_can_be_chosen(ask: Ask, home: Path) -> None:
    seed = make_run(home, "finetune", RUN_ID)
    old = compared(home, "old", 1e9, board("SST-2", [seed, "gone"], papers=True), board("CoLA", [], HOSTILE))
    new = compared(home, "new", 1e9 + 1000, board("SST-2", [], "frozen", papers=True))
    answer = ask("leaderboards")
    assert answer["contradictions"] == ["122 rows/s, not 1,842"] and "left out" not in json.dumps(answer)
    cola, sst = answer["tasks"]
    assert (cola["task"], cola["leaderboard"]["run"], cola["rows"][0]["name"]) == ("CoLA", old, HOSTILE)
    assert (sst["leaderboard"]["run"], sst["rows"][0]["name"]) == (new, "frozen")
    assert sst["leaderboard"]["href"].endswith("/runs/leaderboard/new/leaderboard/leaderboard.html")
    assert [(each["run"], each["time"]) for each in sst["leaderboards"]] == [(new, 1e9 + 1000), (old, 1e9)]
    cola, sst = ask("leaderboards", run=old)["tasks"]
    assert (sst["leaderboard"]["run"], len(sst["leaderboards"])) == (old, 2)
    first, second = sst["rows"]
    assert (first["metric"], first["interval"], first["runs"]) == (0.83, [0.81, 0.85], [seed, ""])
    assert (second["metric"], second["seconds"], second["p"], second["interval"]) == (None, None, 0.03, None)
    assert [claim["ours"] and claim["ours"]["metric"] for claim in sst["papers"]] == [0.83, None]


def test_a_leaderboard_whose_file_is_damaged_or_gone_gives_way_to_an_older_one(ask: Ask, home: Path) -> None:
    sound = compared(home, "sound", 1e9, board("SST-2", []))
    for number, text in enumerate(("{", "[]", '{"tasks": [{"task": "SST-2"}]}', "")):
        bad = compared(home, f"bad-{number}", 1e9 + 1 + number, board("SST-2", []), board("CoLA", []))
        file = home / Run(home / "runs" / bad).record()["stages"]["leaderboard"]["path"] / "leaderboard.json"
        file.write_text(text) if text else file.unlink()
        change_record(Run(home / "runs" / bad), note=text)
    (task,) = ask("leaderboards", run=bad)["tasks"]
    assert task["leaderboard"]["run"] == sound


@pytest.mark.usefixtures("only_retrain")
def test_leaderboards_are_shown_to_whoever_may_read_their_dag(ask: Ask, home: Path) -> None:
    compared(home, "new", 1e9, board("SST-2", []))
    assert ask("leaderboards") == {"tasks": [], "contradictions": []}
