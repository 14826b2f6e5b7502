"""Both stages of a search, on real trainings of a tiny encoder."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from include.artifacts import in_turn, locked
from include.named_experiments import build, load, merge
from include.runs import Run
from include.stages import BadInput
from tasks.runner import run_stage
from tasks.search import rungs
from tasks.search.trial import IN_COMMON, advance
from tests.tasks.search.searches import killed, read, search, values, without_times


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    """With homes whose MLflow has a database from the start."""
    root = tmp_path_factory.mktemp("search")
    for name in ("whole", "killed", "failing", "nothing"):
        (root / name / "mlflow").mkdir(parents=True)
        shutil.copy(empty_database, root / name / "mlflow")
    return root


@pytest.fixture(scope="module")
def whole(root: Path) -> dict[str, Any]:
    """A search that nothing disturbs."""
    return search(root / "whole", values(root / "data"))


def test_a_search_tries_promotes_and_leaves_ordinary_runs(root: Path, whole: dict[str, Any]) -> None:
    trials, home = whole["trials"], root / "whole"
    assert [trial["number"] for trial in trials] == list(range(5))
    assert trials[0]["default"] and trials[0]["values"]["training.epochs"] == 2
    assert len({str(trial["values"]) for trial in trials}) == 5
    reached = [len(trial["rungs"]) for trial in trials]
    assert sorted(reached) == [1, 1, 1, 1, 2]  # a third of five is promoted once, and a third of one is none
    (promoted,) = [trial for trial in trials if len(trial["rungs"]) == 2]
    assert promoted["rungs"][0]["metric"] == max(trial["rungs"][0]["metric"] for trial in trials)
    assert whole["best"] == promoted["number"] and promoted["state"] == "paused"
    assert whole["seconds"] > 0 and set(whole["importance"]) <= set(whole["space"])
    record = Run(home / "runs" / trials[1]["run"]).record()
    assert record["search"] == whole["search"] and record["stages"]["preprocess"]["key"]
    assert record["experiment"]["training"]["epochs"] == trials[1]["values"]["training.epochs"]
    assert not list(home.glob("checkpoints/train/*"))  # no trial is promoted any more


def test_kills_change_nothing(root: Path, whole: dict[str, Any]) -> None:
    found, befell = killed(root / "killed", values(root / "data"), kills=2, longest=1)
    assert befell == 2
    assert without_times(found) == without_times(whole)


def test_what_trials_have_in_common_is_made_by_one_process_at_a_time(root: Path, whole: dict[str, Any]) -> None:
    made = Run(root / "whole" / "runs" / "tune")
    experiment = build(merge(values(root / "data"), {"model.name": "./nowhere"}), "the test's experiment")
    with ThreadPoolExecutor(1) as pool:
        with in_turn(made.folder / IN_COMMON):
            found = pool.submit(advance, Run(made.folder.with_name("waiting")), made, whole["search"], experiment)
            with pytest.raises(TimeoutError):
                found.result(0.5)
        with pytest.raises(BadInput, match="nowhere"):
            found.result(30)


def test_a_winner_is_compared_with_the_default(root: Path, whole: dict[str, Any]) -> None:
    home, experiment = root / "whole", build(values(root / "data", trials=5), "the test's experiment")
    run = Run(home / "runs" / "tune")
    made = run_stage("recommend", experiment, run)
    said, comparison = made.manifest.result, read(made.path)["comparison"]
    assert comparison["seeds"] == [2, 3]  # that of the search is 1
    for name, values_of in (("winner", whole["trials"][whole["best"]]["values"]), ("default", whole["default"])):
        for seed, folder, metric in zip((2, 3), comparison[name]["runs"], comparison[name]["values"], strict=True):
            record = Run(home / "runs" / folder).record()
            assert record["experiment"]["training"]["seed"] == seed
            assert all(record["experiment"]["training"][key.partition(".")[2]] == values_of[key] for key in values_of)
            assert record["stages"]["evaluate"]["result"]["metrics"]["accuracy"] == metric
    low, high = comparison["interval"]
    assert low <= comparison["difference"] <= high
    assert (said["recommended"] == "winner") == (low > 0)
    chosen = load(str(made.path / "experiment.yaml"))
    values_of = whole["trials"][whole["best"]]["values"] if low > 0 else whole["default"]
    wanted = build(merge(values(root / "data"), values_of), "it")
    assert (chosen.training, chosen.model, chosen.search.space) == (wanted.training, wanted.model, {})
    assert run_stage("recommend", experiment, run).manifest.key == made.manifest.key


def test_a_known_name_with_another_space_is_refused(root: Path, whole: dict[str, Any]) -> None:
    space = {"training.batch_size": [8, 16]}
    run = Run(root / "whole" / "runs" / "tune")
    with pytest.raises(BadInput, match=r"has other data, settings, or another space: write another search\.name"):
        run_stage("search", build(values(root / "data", name=whole["search"], space=space), "it"), run)


def test_more_trials_go_on_with_the_same_search(root: Path, whole: dict[str, Any]) -> None:
    found = search(root / "whole", values(root / "data", trials=6))
    assert found["search"] == whole["search"] and len(found["trials"]) == 6
    assert [one["values"] for one in found["trials"][:5]] == [one["values"] for one in whole["trials"]]


def test_settings_without_a_model_fail_alone(root: Path) -> None:
    experiment = values(root / "data", space={"training.batch_size": [8, 4096]}, trials=0)
    found = search(root / "failing", experiment)
    assert [trial["state"] for trial in found["trials"]] == ["paused", "failed"]
    assert "only 80 rows are left to train on" in found["trials"][1]["message"]
    assert found["best"] == 0


def test_a_space_in_which_nothing_works_is_an_error(root: Path) -> None:
    experiment = values(root / "data", space={"training.batch_size": [1024, 2048, 4096]}, trials=0)
    with pytest.raises(BadInput, match=r"all 3 trials have failed, the last one because training\.batch_size is"):
        search(root / "nothing", experiment)


def test_a_trial_of_a_process_at_work_is_left_to_it(root: Path, whole: dict[str, Any]) -> None:
    """The budget ends a search as well as the number of trials does."""
    experiment = build(values(root / "data", minutes=0.0001, trials=0), "it")
    run = Run(root / "whole" / "runs" / "tune")
    with locked(Run(root / "whole" / "runs" / whole["trials"][0]["run"]).folder):
        made = run_stage("search", experiment, run)
    assert made.manifest.result["trials"] >= 5
    assert len(rungs.SHARES) == rungs.LAST + 1
