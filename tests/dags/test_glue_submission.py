"""The Dag glue_submission: when it starts, and which runs it puts together."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, PartitionedAssetTimetable, RollupMapper, SegmentWindow

from include.artifacts import write_json
from include.named_experiments import load
from include.runs import Run
from include.stages import BadInput
from spark_bert.dag.assets import FINETUNED
from spark_bert.operators.process import ProcessStageOperator
from spark_bert.studies.submission import TASKS, announce, choose, submission_experiment


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a finished run of each task."""
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    for name, experiment in {"sst2": "sst2", "cola": "cola", "stsb": "stsb", "second": "sst2"}.items():
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        stages = {stage: {"key": f"{name}-{stage}", "exit_code": 0} for stage in ("validate", "predict", "export")}
        write_json(
            folder / "run.json",
            {"run": name, "experiment": load(experiment).model_dump(mode="json"), "stages": stages},
        )
    return tmp_path


def event(minute: int, task: str, run: str) -> Any:
    return SimpleNamespace(timestamp=datetime(2026, 1, 2, 3, minute, tzinfo=UTC), extra={"task": task, "run": run})


def context(runs: tuple[str, ...] = (), triggering: Any = (), known: Any = ()) -> Any:
    return {
        "params": {"runs": list(runs)},
        "dag_run": SimpleNamespace(dag_id="glue_submission", run_id="first"),
        "triggering_asset_events": {FINETUNED: list(triggering)} if triggering else {},
        "inlet_events": {FINETUNED: list(known)},
    }


def chosen(**asked: Any) -> dict[str, str]:
    found: dict[str, str] = choose.function(**context(**asked))
    return found


def test_it_waits_for_a_model_of_each_task(dag: DAG) -> None:
    timetable = dag.timetable
    assert isinstance(timetable, PartitionedAssetTimetable) and timetable.asset_condition == FINETUNED
    mapper = timetable.default_partition_mapper
    assert isinstance(mapper, RollupMapper) and mapper.window == SegmentWindow(list(TASKS))
    export = dag.get_task("export")
    assert isinstance(export, ProcessStageOperator) and export.upstream_task_ids == {"choose"}


@pytest.mark.parametrize(("source", "task"), [("glue", "SST-2"), ("files", "SST-2-files")])
def test_own_files_under_a_glue_tasks_name_are_not_announced_as_glues(source: str, task: str) -> None:
    told: list[str] = []
    event = SimpleNamespace(add_partitions=told.append, extra={})
    params = {"experiment": "sst2", "data.source": source}
    run = SimpleNamespace(dag_id="finetune", run_id="first")
    extra = announce.function(dag_run=run, params=params, outlet_events={FINETUNED: event})
    assert (
        told == [name for name in TASKS if name == task]
        and extra["task"] == task
        and extra["run"].startswith("finetune-first")
    )


def test_the_newest_of_each_task_is_taken(home: Path) -> None:
    events = [
        event(1, "SST-2", "sst2"),
        event(3, "CoLA", "cola"),
        event(2, "SST-2", "second"),
        event(4, "STS-B", "stsb"),
    ]
    expected = {"SST-2": "second", "CoLA": "cola", "STS-B": "stsb"}
    assert chosen(triggering=events, known=[event(5, "SST-2", "sst2")]) == expected
    assert chosen(known=[*events, event(6, "movie-reviews", "movies")]) == expected
    nameless = SimpleNamespace(timestamp=datetime(2026, 1, 3, tzinfo=UTC), extra={})
    assert chosen(known=[event(1, "CoLA", "cola"), nameless]) == {"CoLA": "cola"}


def test_the_submission_is_a_run_of_its_own(home: Path) -> None:
    before = Run(home / "runs/cola").record()
    chosen(runs=("cola", "sst2"))
    experiment = submission_experiment(context())
    assert experiment.submission.all_tasks and experiment.submission.runs == ("sst2",)
    (own,) = home.glob("runs/glue_submission-first-*")
    found = {"started": None, "ended": None, "reused": True}  # this run has spent no time on them
    adopted = {stage: {**before["stages"][stage], **found} for stage in ("validate", "predict")}
    assert Run(own).record()["stages"] == adopted
    assert Run(home / "runs/cola").record() == before


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "no run of SST-2, CoLA, STS-B has passed its gate yet: trigger finetune, or set the param runs"),
        ({"runs": ("sst2", "second")}, "sst2 and second are both runs of SST-2: name only one of them"),
        ({"runs": ("gone",)}, "there is no run gone in .*/runs: write the name of one of the folders there"),
        ({"runs": ("../../other/runs/sst2",)}, "there is no run ../../other/runs/sst2 in"),
        ({"runs": ("/other/runs/sst2",)}, "there is no run /other/runs/sst2 in"),
        ({"known": [event(1, "CoLA", "removed")]}, "there is no run removed"),
    ],
)
def test_what_cannot_be_put_together_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        chosen(**asked)
