"""The pages of searches: while they run, when they have ended, and for users who may not read all runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from include.named_experiments import load
from include.runs import SEARCH, Run
from spark_bert.deployment.places import run_folder
from tests.plugins.web.panel.conftest import Ask
from tests.plugins.web.panel.runs import HOSTILE, change_record, commit, make_run, make_stages
from tests.searches import summary

RUN_ID = "manual__2026-11-26T10:00:00+00:00"
FILES = {"report": "search.html", "experiment": "experiment.yaml", "search": SEARCH}


def searched(home: Path, run_id: str = RUN_ID, **changes: Any) -> str:
    """Let a run of the Dag tune have searched and recommended, and return the name of its folder."""
    results: dict[str, dict[str, Any]] = {"validate": {}, "search": {}, "recommend": {"files": FILES}}
    content = {SEARCH: json.dumps(summary(**changes)), "search.html": "<h1>", "experiment.yaml": "{}"}
    return make_stages(home, "tune", run_id, 1e9, results, content)


def searching(home: Path, run_id: str = RUN_ID, text: str = "", **changes: Any) -> str:
    """Let a run of the Dag tune be searching, and return the name of its folder."""
    run = Run(run_folder("tune", run_id))
    commit(home, run, load("movies"), "validate", {}, {})
    change_record(run, dag_id="tune", run_id=run_id)
    (run.folder / SEARCH).write_text(text or json.dumps(summary(recommended="", **changes)))
    return run.folder.name


def test_a_search_that_has_ended_shows_trials_and_recommendation(ask: Ask, home: Path) -> None:
    made = summary()
    first, winner = made["trials"][0]["run"], made["comparison"]["winner"]["runs"][1]
    make_run(home, "", first)
    make_run(home, "", winner)
    run = searched(home)
    found = ask("search", run=run)
    assert (found["search"], found["state"], found["best"]) == (made["search"], "done", made["best"])
    assert [trial["run"] for trial in found["trials"][:2]] == [first, ""]  # the other run is gone
    assert found["trials"][0]["default"] and len(found["trials"]) == 18
    assert found["trials"][-1]["message"].startswith("loss.kind focal")
    assert found["space"]["training.learning_rate"] == {"choices": None, "log": True}
    compared = found["comparison"]
    assert (compared["recommended"], compared["winner"]["runs"]) == ("winner", ["", winner, ""])
    titles = {file["title"]: file["href"] for file in found["files"]}
    assert titles["Search"].endswith("/recommend/search.html")
    assert titles["Recommended experiment"].endswith("/recommend/experiment.yaml")
    (line,) = ask("searches")["searches"]
    assert (line["run"], line["trials"], line["recommended"]) == (run, 18, "winner")
    assert line["best"] == max(trial["metric"] for trial in made["trials"] if len(trial["rungs"]) == 3)


def test_a_search_is_shown_while_it_runs(
    ask: Ask, home: Path, dag_run: Callable[[str, str, str], None], task: Callable[..., None]
) -> None:
    run = searching(home, trials=1)
    dag_run("tune", RUN_ID, "running")
    task("tune", RUN_ID, "search", "success", map_index=0)
    task("tune", RUN_ID, "search", "running", map_index=1)
    by_ids = {"dag_id": "tune", "run_id": RUN_ID}
    for which in ({"run": run}, by_ids, by_ids | {"map_index": "1"}):  # both workers are at work in the same run
        found = ask("search", **which)
        assert (found["run"], found["state"], found["comparison"]) == (run, "running", None)
    stages = {stage["stage"]: stage["state"] for stage in ask("run", run=run)["stages"]}
    assert stages == {"validate": "done", "search": "running"}
    assert [row["run"] for row in ask("runs")["rows"]] == [run]
    (home / "runs" / run / SEARCH).write_text(json.dumps(summary(trials=2, recommended="")))
    assert len(ask("search", run=run)["trials"]) == 2
    assert ask("searches")["searches"][0]["state"] == "running"


def test_the_last_search_comes_first_and_a_search_has_no_best_trial_at_first(ask: Ask, home: Path) -> None:
    old, new = searched(home, "old"), searching(home, "new", text=json.dumps(_begun()))
    os.utime(home / "runs" / old / "run.json", (1e9,) * 2)
    found = ask("searches")["searches"]
    assert [(one["run"], one["best"] is None) for one in found] == [(new, True), (old, False)]
    assert ask("search", run=new)["trials"][0]["metric"] is None


def _begun() -> dict[str, Any]:
    made = summary(trials=1, recommended="")
    made["trials"][0] |= {"rungs": [], "metric": None, "state": "running"}
    return made | {"best": None, "importance": {}}


@pytest.mark.parametrize("text", ["{", "[]", '{"search": 7}', '{"trials": [{}]}', "[" * 9999])
def test_a_damaged_file_is_no_search(ask: Ask, home: Path, text: str) -> None:
    run = searching(home, text=text)
    assert ask("searches") == {"searches": []}
    assert ask("search", run=run)["search"] == ""


def test_no_run_of_another_kind_is_a_search_and_no_link_is_followed(ask: Ask, home: Path) -> None:
    make_run(home, "finetune", RUN_ID)
    run = searching(home, "linked")
    (home / "runs" / run / SEARCH).rename(home / "elsewhere.json")
    (home / "runs" / run / SEARCH).symlink_to(home / "elsewhere.json")
    assert ask("searches") == {"searches": []}
    hostile = searching(home, "hostile", search=HOSTILE)
    assert ask("search", run=hostile)["search"] == HOSTILE


@pytest.mark.usefixtures("only_retrain")
def test_searches_are_shown_to_whoever_may_read_their_dag(ask: Ask, home: Path) -> None:
    run = searched(home)
    assert ask("searches") == {"searches": []}
    ask("search", run=run, status=404)
