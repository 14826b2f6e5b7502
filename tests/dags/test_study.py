"""The Dag study: when it starts, and which study it takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.partition_mappers.base import RollupMapper as Core
from airflow.sdk import DAG, PartitionedAssetTimetable, RollupMapper

from include.ablations import TABLE_5
from include.stages import STAGES, BadInput
from spark_bert.dag.assets import ABLATION_ARM
from spark_bert.operators.process import ProcessStageOperator
from spark_bert.studies.ablation import StudyMapper, Table5Window, study_experiment
from tests.airflow_home import ROOT


def test_it_waits_for_the_arms_of_table_5(dag: DAG) -> None:
    timetable = dag.timetable
    assert isinstance(timetable, PartitionedAssetTimetable) and timetable.asset_condition == ABLATION_ARM
    mapper = timetable.default_partition_mapper
    assert isinstance(mapper, RollupMapper)
    assert isinstance(mapper.upstream_mapper, StudyMapper) and isinstance(mapper.window, Table5Window)


def test_a_study_waits_for_its_own_arms_of_table_5() -> None:
    window = Core(upstream_mapper=StudyMapper(), window=Table5Window())
    assert window.to_upstream("SST-2-0a1b2c") == {f"SST-2-0a1b2c/{name}" for name in TABLE_5}
    assert [window.to_downstream(f"CoLA/{name}") for name in ("base", "focal")] == ["CoLA", []]
    assert window.to_downstream("base") == []


def test_how_the_dag_behaves(dag: DAG) -> None:
    (task,) = dag.tasks
    assert isinstance(task, ProcessStageOperator) and task.stage == task.task_id == "study"
    assert task.owner == "spark-bert" and task.doc_md == STAGES["study"].does
    assert not dag.catchup and dag.max_active_runs == 1 and dag.dagrun_timeout == timedelta(hours=1)
    assert dag.doc_md and all(name in dag.doc_md for name in TABLE_5) and "`study`" in dag.doc_md
    assert len((ROOT / "dags/study.py").read_text().splitlines()) < 80


def event(minute: int, study: str | None) -> Any:
    extra = {} if study is None else {"study": study}
    return SimpleNamespace(timestamp=datetime(2026, 1, 2, 3, minute, tzinfo=UTC), extra=extra)


def name(study: str = "", partition: str | None = None, known: Any = ()) -> str:
    """The study that a run takes, of its param, its partition, and all events that there are."""
    context: Any = {
        "params": {"study": study},
        "dag_run": SimpleNamespace(partition_key=partition),
        "inlet_events": {ABLATION_ARM: list(known)},
    }
    return study_experiment(context).study.name


def test_the_study_is_the_one_asked_for_or_the_newest() -> None:
    older, newer = event(1, "CoLA"), event(2, "SST-2-0a1b2c")
    assert name(partition="CoLA", known=[older, newer]) == "CoLA"
    assert name(known=[older, newer]) == "SST-2-0a1b2c"
    assert name("STS-B", "CoLA", [newer]) == "STS-B"


def test_without_an_event_that_names_a_study_one_must_be_written() -> None:
    with pytest.raises(BadInput, match="no arm has been trained yet: run the Dag ablation first"):
        name()
    with pytest.raises(BadInput, match="the newest event of the asset ablation-arm names no study"):
        name(known=[event(1, "CoLA"), event(2, None)])
