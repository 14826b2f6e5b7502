"""An ablation: the params, experiments and records of its arms, and the study that the Dag `study` reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.partition_mappers.base import PartitionMapper
from airflow.partition_mappers.window import Window
from airflow.sdk import Context, Param, task

from include.ablations import CONFIGURATIONS, EXPERIMENTS, TABLE_5, Configuration, arm, day, find, study
from include.artifacts import write_json
from include.experiment import Experiment
from include.named_experiments import build
from include.runs import ARM
from include.stages import BadInput
from spark_bert.dag.assets import ABLATION_ARM
from spark_bert.dag.params import filled, form, resolve
from spark_bert.deployment.places import this_run

#: The box in Airflow's form for a backfill without which it sends no field of the Dag's form.
TICK = "Override parameters on existing runs"
_TASK, _SEED = "task", "seed"
#: Fields of the form that the ablation's own params, or its configurations, replace.
_REPLACED = ("experiment", "data.task", "training.seed")


def ablation_form() -> dict[str, Param]:
    """Return the Dag's params: task, seed, and the other fields of the form, which apply to all arms of a study."""
    return {
        _TASK: Param(
            "movie-reviews",
            title="Task",
            type="string",
            enum=list(EXPERIMENTS),
            section="Study",
            description_md="The task whose named experiment the configurations change. Default: **movie-reviews**. "
            f"**In a backfill, tick *{TICK}* above this form: otherwise, Airflow sends none of its fields.**",
        ),
        _SEED: Param(
            1,
            title="Seed",
            type="integer",
            allOf=[{"minimum": 0, "maximum": 2**31 - 1}],  # the form would change a number beyond them in silence
            section="Study",
            description_md="The seed of the classification head, dropout and the order of the rows (training.seed). "
            "Default: **1**.",
        ),
        **{key: param for key, param in form().items() if key not in _REPLACED},
    }


def explain_configurations() -> str:
    """Return a Markdown table of all configurations with their days, for the Dag's page."""
    rows = (f"| {day(row.id)} | `{row.id}` | {row.about} |" for row in CONFIGURATIONS.values())
    return "\n".join(["| day | configuration | description |", "| --- | --- | --- |", *rows])


def arm_experiment(context: Context) -> Experiment:
    """Return the experiment of the run's arm."""
    params = context["params"]
    changes = arm(_configuration(context), params[_SEED], _overrides(params))
    return resolve({"experiment": EXPERIMENTS[params[_TASK]], **changes})


@task(task_id="arm", outlets=[ABLATION_ARM], doc_md="record the finished arm for the study")
def record_arm(**context: Any) -> dict[str, Any]:
    """Write arm.json into the run's folder, update the asset that the Dag `study` waits for, and return the content."""
    params = context["params"]
    configuration = _configuration(context)
    folder = this_run(context).folder
    overrides = {key: value for key, value in _overrides(params).items() if not key.startswith("runtime.")}
    record = {
        "study": study(params[_TASK], overrides),  # runtime fields do not change results, so they make no other study
        "configuration": configuration.id,
        "task": params[_TASK],
        "seed": params[_SEED],
        "run": folder.name,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(folder / ARM, record)
    event = context["outlet_events"][ABLATION_ARM]
    event.add_partitions(arm_key(record["study"], configuration.id))
    event.extra = record
    return record


def _configuration(context: Mapping[str, Any] | Context) -> Configuration:
    run = context["dag_run"]
    if run.partition_key is None:
        raise BadInput(
            "this run names no configuration: start a backfill over the days of the configurations, or trigger one arm "
            f"through the REST API with partition_key set to one of {', '.join(CONFIGURATIONS)}"
        )
    if not run.conf:
        raise BadInput(
            "this arm has none of the form's fields and would train at full size. Airflow's page sends them with a "
            f"backfill only if {TICK!r} is ticked: cancel the backfill, tick it, and start it again. From the command "
            """line, write at least --dag-run-conf '{"task": "movie-reviews"}'"""
        )
    return find(run.partition_key)


def _overrides(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in filled(params).items() if key not in (_TASK, _SEED)}


def arm_key(study: str, configuration: str) -> str:
    """Return the partition key of an arm's event."""
    return f"{study}/{configuration}"


class StudyMapper(PartitionMapper):
    """Maps the partition of an arm to that of its study. The key of the latter is the study's name."""

    def to_downstream(self, key: str) -> str | list[str]:
        """Return the study, or an empty list if the arm is not part of table 5, so that no study waits for it."""
        study, _, configuration = key.rpartition("/")
        return study if study and configuration in TABLE_5 else []


class Table5Window(Window):
    """A study is complete when every configuration of table 5 has an arm, with any seed."""

    def to_upstream(self, decoded_downstream: str) -> list[str]:
        """Return the partition keys of the arms that the study waits for."""
        return [arm_key(decoded_downstream, configuration) for configuration in TABLE_5]


def study_experiment(context: Context) -> Experiment:
    """Return an experiment that names the study: the param `study`, or the one that started the run, or the newest.

    The Airflow task needs the asset as an inlet, because the newest arm is found through the asset's events.
    """
    name = context["params"]["study"] or context["dag_run"].partition_key or _newest(context)
    return build({"study": {"name": name}}, "the study")


def _newest(context: Context) -> str:
    events: Sequence[Any] = context["inlet_events"][ABLATION_ARM]
    if not len(events):
        raise BadInput(
            "no arm has been trained yet: run the Dag ablation first, or set the param study to the name of a study"
        )
    name = max(events, key=lambda event: event.timestamp).extra.get("study")
    if not name:
        raise BadInput(
            f"the newest event of the asset {ABLATION_ARM.name} names no study: set the param study to the study's name"
        )
    return str(name)
