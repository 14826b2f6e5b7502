"""The Dag retrain: when it starts, what it trains on, when there is nothing to do, and what a person is asked."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAny, AssetOrTimeSchedule
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowSkipException, TaskAwaitingInput

from include.artifacts import Artifact, Manifest, artifact_key
from include.stages import STAGES, BadInput, ExitCode
from spark_bert.dag.assets import DRIFTED
from spark_bert.dag.params import form, from_form
from spark_bert.deployment.places import REPOSITORY, data_path, this_run
from spark_bert.operators.base import StageOperator
from spark_bert.retrain.approval import PromotionApproval, request_body
from spark_bert.retrain.drop_folder import DropFolderTrigger, acknowledge_event
from spark_bert.retrain.retraining import EXPERIMENT, labeled_data, news, versioned_experiment

#: An ingest's result, of a version that has been added, and of the run's own experiment.
VERSION = {"data.source": "files", "data.path": "/home/artifacts/ingest/0123456789abcdef", "data.columns": {}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    return tmp_path


def context(run: str = "now", results: dict[str, Any] | None = None, /, **conf: Any) -> Any:
    """Return the context of a task; `results` are those of the other Airflow tasks of the run."""
    params = ParamsDict(form(EXPERIMENT, more=("dataset", "retraining")))
    params.update(conf)
    pull = lambda task_ids: {"register": {"model": "reviews", "version": "3"}, **(results or {})}.get(task_ids)  # noqa: E731
    ti = SimpleNamespace(run_id=run, map_index=-1, xcom_pull=pull)
    return {"params": params.validate(), "dag_run": SimpleNamespace(dag_id="retrain", run_id=run), "ti": ti}


def made(
    where: Any, stage: str, exit_code: int = 0, files: Mapping[str, str] = MappingProxyType({}), **result: Any
) -> Artifact:
    """Let a run have an artifact of a stage with these files, as the runner would have committed it."""
    run = this_run(where)
    experiment = from_form(where) if stage in ("ingest", "champion") else versioned_experiment(where)
    part = STAGES[stage].part(experiment)
    key = artifact_key(1, part, {}, json.dumps(result))
    manifest = Manifest(stage, key, 1, part, {}, "", "revision", result=result, exit_code=exit_code)
    with run.store.writing(stage, key) as folder:
        for name, text in files.items():
            (folder / name).write_text(text)
        artifact = run.store.commit(folder, manifest)
    run.add(artifact, experiment)
    return artifact


def test_it_starts_on_mondays_when_files_come_and_when_a_stream_drifts(dag: DAG) -> None:
    timetable = dag.timetable
    assert isinstance(timetable, AssetOrTimeSchedule)
    either = timetable.asset_condition
    assert isinstance(either, AssetAny) and list(either.objects) == [labeled_data(), DRIFTED]
    assert dag.is_paused_upon_creation
    (asset, _) = either.objects
    assert isinstance(asset, Asset)
    (watcher,) = asset.watchers
    assert isinstance(watcher.trigger, DropFolderTrigger)
    assert watcher.trigger.folder == str(data_path("data/drop"))


def test_no_drop_folder_is_watched_where_none_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "retrain.yaml").write_text("dataset: {name: reviews}")
    monkeypatch.setattr("include.named_experiments.FOLDER", tmp_path)
    assert labeled_data().watchers == []


def test_relative_data_lie_in_the_checkout_or_where_the_deployment_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_path("data/no-such") == REPOSITORY / "data/no-such" and data_path("/drop") == Path("/drop")
    monkeypatch.setenv("SPARK_BERT_DATA", str(tmp_path))
    assert data_path("data/no-such") == tmp_path / "no-such"


def test_the_order_of_its_tasks(dag: DAG) -> None:
    upstream = {task.task_id: task.upstream_task_ids for task in dag.tasks}
    line = [
        "ingest", "champion", "news", "validate", "preprocess", "pretrain", "teach", "train", "evaluate", "gate",
        "package", "challenge", "register", "trial",
    ]  # fmt: skip
    end = ["promote", "rollout", "rollback", "track", "end"]
    assert set(upstream) == {*line, "approve", *end, "succeeded"}
    assert all(upstream[later] == {earlier} for earlier, later in itertools.pairwise(line))
    assert upstream["approve"] == {"register", "trial"} and upstream["promote"] == {"register", "approve"}
    assert all(upstream[later] == {earlier} for earlier, later in itertools.pairwise(end))
    assert {dag.get_task(name).trigger_rule for name in ("approve", "promote")} == {"none_failed_min_one_success"}
    assert dag.get_task("rollback").trigger_rule == "one_failed" and dag.max_active_runs == 1
    assert all(task.execution_timeout == timedelta(hours=24) for task in dag.tasks)


def test_a_run_fails_with_its_rollout_even_if_the_rollback_succeeds(dag: DAG) -> None:
    """Airflow takes the state of a run from its leaves. One of them succeeds in any case."""
    assert {task.task_id for task in dag.tasks if not task.downstream_task_ids} == {"succeeded", "end"}
    assert dag.get_task("succeeded").upstream_task_ids == {"rollout"}
    assert {dag.get_task(name).trigger_rule for name in ("track", "end")} == {"all_done"}


def test_people_are_told_of_an_undone_promotion(dag: DAG) -> None:
    rollback: Any = dag.get_task("rollback")
    assert [notice.event for notice in rollback.on_success_callback] == ["rollback"]


def test_a_run_says_which_event_it_has_begun_with(dag: DAG) -> None:
    ingest: Any = dag.get_task("ingest")
    assert ingest.on_execute_callback == [acknowledge_event] and ingest.inlets == [labeled_data()]


def test_drift_of_a_stream_is_no_event_of_the_drop_folder() -> None:
    kept: dict[str, Any] = {}
    told = SimpleNamespace(extra={"stream": "stream", "drift": []}, timestamp=1)
    now: Any = {
        "triggering_asset_events": {DRIFTED: [told]},
        "asset_state_store": SimpleNamespace(set=kept.__setitem__),
    }
    acknowledge_event(now)
    assert not kept


def test_people_are_told_of_files_that_ingest_sets_aside(dag: DAG) -> None:
    told: Any = dag.get_task("ingest").on_success_callback
    assert [notice.event for notice in told] == ["ingest"]


def test_training_is_on_the_version_that_ingest_ended_with() -> None:
    now = context("now", **{"training.epochs": 1})
    with pytest.raises(BadInput, match="no version of the dataset"):
        versioned_experiment(now)
    made(now, "ingest", data=VERSION)
    found = versioned_experiment(now)
    assert found.data.path == VERSION["data.path"] and found.data.source == "files" and found.training.epochs == 1
    assert found.model.name == "all-MiniLM-L6-v2"


def test_without_a_threshold_no_data_are_taken_in(dag: DAG) -> None:
    ingest = dag.get_task("ingest")
    assert isinstance(ingest, StageOperator)
    own = {"data.task": "classification", "data.source": "files", "data.path": "data/own", "data.labels": ["no", "yes"]}
    with pytest.raises(BadInput, match=r"classification has no threshold of its own.* set gate\.accuracy"):
        ingest.experiment_of(context("now", **own))
    assert ingest.experiment_of(context("now", **own, **{"gate.accuracy": 0.8})).thresholds == {"accuracy": 0.8}


def test_dev_rows_that_the_champion_was_trained_on_compare_nothing() -> None:
    now = context("now", **{"preprocessing.resplit": True})
    made(now, "ingest", data=VERSION)
    with pytest.raises(BadInput, match=r"champion was trained on.*write preprocessing\.resplit: false"):
        _news(now)


def test_after_a_refused_ingest_there_is_no_version_but_the_run_is_tracked(dag: DAG) -> None:
    now = context()
    made(now, "ingest", ExitCode.GATE_FAILED, new=False, version="")
    with pytest.raises(BadInput, match="no version of the dataset: clear its Airflow task ingest"):
        versioned_experiment(now)
    track = dag.get_task("track")
    assert isinstance(track, StageOperator)
    track.render_template_fields(now)
    assert track.command[-1] == str(this_run(now).folder)


def test_what_a_stage_says_of_its_data_changes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stage may write the record of its run."""
    monkeypatch.setenv("SPARK_BERT_APPROVERS", "ann")
    now = context()
    forged = {"retraining.approval": False, "runtime.spark_master": "spark://x:1", "data.task": "regression"}
    made(now, "ingest", data=VERSION | forged)
    experiment = versioned_experiment(now)
    assert experiment.data.path == VERSION["data.path"] and experiment.data.task == from_form(now).data.task
    assert experiment.retraining.approval and experiment.runtime.spark_master == "local[*]"


def test_training_begins_with_the_champion_where_the_experiment_says_so() -> None:
    warm = context(**{"retraining.start": "champion"})
    made(warm, "ingest", data=VERSION)
    assert versioned_experiment(warm).model.name == "all-MiniLM-L6-v2"  # there is none yet
    made(warm, "champion", folder="/home/artifacts/train/0/model", version="3")
    assert versioned_experiment(warm).model.name == "/home/artifacts/train/0/model"
    cold = context("cold")
    made(cold, "ingest", data=VERSION)
    made(cold, "champion", folder="/home/artifacts/train/0/model", version="3")
    assert versioned_experiment(cold).model.name == "all-MiniLM-L6-v2"


@pytest.mark.parametrize(("stage", "exit_code"), [("gate", 3), ("challenge", 3), ("promote", 0)])
@pytest.mark.parametrize("start", ["encoder", "champion"])
def test_what_has_had_its_verdict_is_not_trained_again(stage: str, exit_code: int, start: str) -> None:
    conf = {"retraining.start": start}
    earlier, now = context("earlier", **conf), context("now", **conf)
    for place, folder in ((earlier, "/home/first"), (now, "/home/second")):
        made(place, "ingest", data=VERSION)
        made(place, "champion", folder=folder)
        made(place, "validate")
    assert _news(now) == VERSION["data.path"]
    made(earlier, stage, exit_code)
    with pytest.raises(AirflowSkipException, match="nothing new: the run retrain-earlier"):
        _news(now)
    assert _news(earlier) == VERSION["data.path"]  # a cleared task asks about the others
    other = context("other", **conf, **{"training.epochs": 3})
    made(other, "ingest", data=VERSION)
    assert _news(other) == VERSION["data.path"]


def test_a_training_that_broke_off_is_done_again() -> None:
    earlier, now = context("earlier"), context("now")
    for stage in ("ingest", "validate", "train", "challenge", "register"):
        made(earlier, stage, data=VERSION)
    made(now, "ingest", data=VERSION)
    assert _news(now) == VERSION["data.path"]
    made(earlier, "promote")
    with pytest.raises(AirflowSkipException, match="nothing new"):
        _news(now)


def test_a_verdict_from_before_there_was_a_field_counts(home: Path) -> None:
    earlier, now = context("earlier"), context("now")
    for place in (earlier, now):
        made(place, "ingest", data=VERSION)
        made(place, "validate")
    made(earlier, "promote")
    (file,) = home.glob("runs/*earlier*/run.json")
    record = json.loads(file.read_text())
    del record["experiment"]["preprocessing"]["long"], record["experiment"]["prediction"]["form"]
    file.write_text(json.dumps(record))
    with pytest.raises(AirflowSkipException, match="nothing new"):
        _news(now)


def test_a_verdict_is_about_the_model_and_not_about_its_use() -> None:
    earlier, now = context("earlier"), context("now", **{"streaming.folder": "/rows", "serving.port": 80})
    for place in (earlier, now):
        made(place, "ingest", data=VERSION)
        made(place, "validate")
    made(earlier, "promote")
    with pytest.raises(AirflowSkipException, match="nothing new"):
        _news(now)


def test_another_encoder_after_a_first_model_that_failed_is_tried() -> None:
    first, now = (
        context("first", **{"retraining.start": "champion"}),
        context("now", **{"retraining.start": "champion", "model.name": "all-mpnet-base-v2"}),
    )
    for place in (first, now):
        made(place, "ingest", data=VERSION)
        made(place, "champion", folder="", version="")
        made(place, "validate")
    made(first, "gate", ExitCode.GATE_FAILED)
    assert _news(now) == VERSION["data.path"]


def test_a_damaged_record_of_another_run_stops_nothing(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = context()
    made(now, "ingest", data=VERSION)
    (home / "runs/cut-off").mkdir()
    (home / "runs/cut-off/run.json").write_text('{"run": "cut')
    assert _news(now) == VERSION["data.path"]
    assert "runs/cut-off/run.json is damaged" in caplog.text


def test_without_a_version_the_task_says_what_to_do() -> None:
    with pytest.raises(BadInput, match="clear its Airflow task ingest"):
        _news(context())


def _news(where: Any) -> Any:
    return news.function(**where)


def compared(now: Any, champion: dict[str, float] | None, apart: dict[str, Any]) -> Path:
    """Let the run have an evaluation and a challenge: the folder of the challenge."""
    made(now, "ingest", data=VERSION)
    made(now, "evaluate")
    capacity = "With 32 clients, the new model answers 3.70 times as many texts."
    metrics = {"model": {"accuracy": 0.9}, "champion": champion}
    found = {"words": "Undecided.", "metrics": metrics, "apart": apart, "capacity": capacity if champion else ""}
    return made(now, "challenge", files={"challenge.json": json.dumps(found)}).path


def test_the_request_shows_both_models_their_mistakes_and_where_to_read_on() -> None:
    now = context()
    row = {"sentences": ["a `fine` *film*"], "label": "positive", "prediction": "negative"}
    compared(now, {"accuracy": 0.91}, {"Only the champion is right": {"count": 1234, "rows": [row] * 7}})
    text = request_body(now, 48)
    assert "With 32 clients, the new model answers 3.70 times as many texts" in text
    assert "Undecided." in text and "| accuracy | 0.9000 | 0.9100 |" in text
    assert "**Only the champion is right** (5 of 1,234 rows)" in text
    assert text.count("- `a 'fine' *film*`: positive, predicted as negative") == 5
    assert re.search(r"\(/spark-bert/runs/retrain/[^/]+/challenge/challenge\.html\)", text)
    assert re.search(r"\(/spark-bert/runs/retrain/[^/]+/evaluate/report\.html\)", text)
    assert text.endswith("within 48 hours, the champion stays.")


def test_the_request_for_a_first_model() -> None:
    now = context()
    compared(now, None, {})
    assert "| accuracy | 0.9000 |  |" in request_body(now, 72)


@pytest.mark.parametrize(
    ("chosen", "person", "expected"),
    [("Approve", {"id": "1", "name": "ada"}, "approved"), ("Reject", None, "rejected")],
)
def test_the_answer_is_returned_for_promote_and_kept_in_the_run(
    dag: DAG, chosen: str, person: Any, expected: str
) -> None:
    now = context()
    this_run(now).folder.mkdir(parents=True)
    operator = PromotionApproval(task_id="approve")
    event = {
        "chosen_options": [chosen], "params_input": {}, "responded_by_user": person, "timedout": person is None,
        "responded_at": datetime(2026, 1, 2, tzinfo=UTC),
    }  # fmt: skip
    returned = operator.execute_complete(now, event)
    kept = json.loads((this_run(now).folder / "decision.json").read_text())
    assert kept == returned == {
        "decision": expected, "by": "ada" if person else "nobody, in time", "at": "2026-01-02T00:00:00+00:00",
        "timed_out": person is None, "model": "reviews", "version": "3",
    }  # fmt: skip
    (this_run(now).folder / "decision.json").write_text('{"decision": "approved"}')  # as any stage can
    promote: Any = dag.get_task("promote")
    for results in ({}, {"approve": returned}, {"approve": returned, "trial": {"version": "3"}}):
        assert promote.told(context("now", results)) == {"SPARK_BERT_PROMOTION": json.dumps(results)}


def test_the_answer_of_an_earlier_try_decides_nothing() -> None:
    now = context("now", **{"retraining.approval": True})
    made(now, "ingest", data=VERSION)
    file = this_run(now).folder / "decision.json"
    file.write_text("{}")
    with pytest.raises(BadInput, match="no challenge yet"):
        PromotionApproval(task_id="approve").execute(now)
    assert not file.exists()


@pytest.mark.parametrize(("named", "expected"), [("", None), (" ann, 7,", ["ann", "7"])])
def test_the_deployment_says_who_may_answer(
    named: str, expected: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = context("now", **{"retraining.approval": not expected})  # a run does not get round those who are named
    compared(now, None, {})
    asked: dict[str, Any] = {}
    monkeypatch.setattr("airflow.providers.standard.operators.hitl.upsert_hitl_detail", lambda **all: asked.update(all))
    monkeypatch.setenv("SPARK_BERT_APPROVERS", named)
    operator = PromotionApproval(task_id="approve")
    operator.notifiers = []
    now["task_instance"] = SimpleNamespace(id=1)
    with pytest.raises(TaskAwaitingInput):
        operator.execute(now)
    assert (asked["assigned_users"] and [user["id"] for user in asked["assigned_users"]]) == expected
    assert asked["subject"] == "Make version 3 the champion?"


def test_who_triggers_a_run_cannot_do_without_the_approvers(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    now = context("now", **{"retraining.approval": False})
    made(now, "ingest", data=VERSION)
    assert not versioned_experiment(now).retraining.approval
    monkeypatch.setenv("SPARK_BERT_APPROVERS", "ann")
    for stage in ("ingest", "champion", "gate", "challenge", "register", "promote"):  # alike, for news compares them
        task: Any = dag.get_task(stage)
        assert task.experiment_of(now).retraining.approval, stage


def test_nobody_is_asked_unless_the_experiment_wants_it() -> None:
    with pytest.raises(AirflowSkipException, match=r"retraining\.approval is off"):
        PromotionApproval(task_id="approve").execute(context())
