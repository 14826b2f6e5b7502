"""The Dag ablation: its stages, the experiment of each of its arms, and the record that an arm leaves."""

from __future__ import annotations

import json
import re
from datetime import datetime
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.asset import Asset
from airflow.sdk.execution_time.context import OutletEventAccessors

from include.ablations import CONFIGURATIONS, day, study
from include.experiment import Experiment
from include.named_experiments import load
from include.stages import BadInput
from spark_bert.dag.assets import ABLATION_ARM
from spark_bert.deployment.places import run_folder
from spark_bert.operators.base import StageOperator
from spark_bert.studies.ablation import TICK, arm_experiment, record_arm
from spark_bert.studies.timetable import ConfigurationTimetable

STAGES = ["validate", "preprocess", "pretrain", "teach", "train", "evaluate"]


def context(key: str | None, **params: Any) -> Any:
    """Of a run of that partition, whose form was sent with these fields."""
    run = SimpleNamespace(dag_id="ablation", run_id=f"backfill__{key}", partition_key=key, conf={"task": "SST-2"})
    events = OutletEventAccessors()
    return {"params": {"task": "SST-2", "seed": 3, "data.path": None} | params, "dag_run": run, "outlet_events": events}


def experiment(key: str, **params: Any) -> Experiment:
    return arm_experiment(context(key, **params))


def test_stages_end_with_evaluate_and_the_arms_record(dag: DAG) -> None:
    assert list(dag.task_dict) == [*STAGES, "arm", "succeeded", "track", "end"]
    for before, after in pairwise([*STAGES, "arm"]):
        assert dag.get_task(before).downstream_task_ids == {after}
    assert dag.get_task("arm").downstream_task_ids == {"succeeded", "track"}
    assert dag.get_task("arm").outlets == [ABLATION_ARM] == [Asset("ablation-arm", uri="spark-bert://ablation-arm")]


def test_an_arm_needs_no_threshold_because_it_ends_before_the_gate(dag: DAG) -> None:
    first = dag.get_task("validate")
    assert isinstance(first, StageOperator) and first.experiment_of is arm_experiment


def test_what_arms_share_is_made_by_one_at_a_time(dag: DAG) -> None:
    assert [task.task_id for task in dag.tasks if task.max_active_tis_per_dag == 1] == STAGES[:4]


def test_it_runs_by_backfill_of_the_configurations_days(dag: DAG) -> None:
    assert isinstance(dag.timetable, ConfigurationTimetable)
    assert dag.timetable.serialize()["ids"] == list(CONFIGURATIONS)
    assert dag.doc_md and all(f"| {day(row.id)} | `{row.id}` |" in dag.doc_md for row in CONFIGURATIONS.values())


def test_an_arm_is_the_tasks_experiment_the_studys_overrides_its_changes_and_its_seed() -> None:
    made = experiment("compression-onebit", **{"training.epochs": 1, "data.path": "/data/{{ no template }}"})
    assert made == load(
        "sst2",
        ["training.epochs=1", "data.path='/data/{{ no template }}'", "communication.compression=onebit",
         "training.ranks=2", "training.seed=3"],
    )  # fmt: skip
    assert experiment("default", task="STS-B", seed=1) == load("stsb", ["training.ranks=2"])


@pytest.mark.parametrize(
    ("key", "params", "message"),
    [
        (None, {}, "this run names no configuration: start a backfill .* partition_key set to one of base, dynamic-b"),
        ("bases", {}, r"unknown configuration 'bases', did you mean base\?"),
        ("base", {"batching.kind": "length"}, "batching.kind = 'length' cannot hold for the whole study, because the "),
        ("base", {"experiment": "cola"}, "experiment = 'cola' cannot hold for the whole study, because the param"),
        ("focal", {"task": "STS-B"}, "loss.kind focal does not fit the regression task STS-B: write one of auto, mse"),
        ("base", {"training.epoch": 1}, r"unknown key training\.epoch, did you mean epochs"),
    ],
)
def test_an_arm_that_cannot_be_fails_its_first_task_at_once(
    dag: DAG, key: str | None, params: dict[str, Any], message: str
) -> None:
    task = dag.get_task("validate")
    assert isinstance(task, StageOperator)
    task.render_template_fields(context(key, **params))
    assert re.search(message, str(task.refusal))


@pytest.mark.parametrize("conf", [None, {}])
def test_an_arm_whose_form_was_not_sent_does_not_train_at_full_size(dag: DAG, conf: dict[str, Any] | None) -> None:
    """Airflow's page sends no conf with a backfill unless a box is ticked that says something else."""
    now = context("base")
    now["dag_run"].conf = conf
    with pytest.raises(BadInput, match="only if 'Override parameters on existing runs' is ticked: cancel the backfill"):
        arm_experiment(now)
    assert dag.doc_md and dag.doc_md.count(TICK) == 2  # above, and at the first field of the form


def test_the_box_to_tick_is_one_of_airflows_page() -> None:
    page = Path(str(files("airflow"))) / "ui/dist/i18n/locales/en/components.json"
    assert json.loads(page.read_text())["backfill"]["overrideExistingParams"] == TICK


def test_the_record_of_an_arm() -> None:
    of_run = context("full", **{"training.epochs": 1})
    folder = run_folder("ablation", "backfill__full")
    folder.mkdir(parents=True)
    record = record_arm.function(**of_run)
    assert json.loads((folder / "arm.json").read_text()) == record == of_run["outlet_events"][ABLATION_ARM].extra
    assert of_run["outlet_events"][ABLATION_ARM].partition_keys == {f"{record['study']}/full"}
    assert datetime.fromisoformat(record.pop("finished")).tzinfo
    assert record == {
        "study": study("SST-2", {"training.epochs": 1}), "configuration": "full", "task": "SST-2", "seed": 3,
        "run": folder.name,
    }  # fmt: skip
