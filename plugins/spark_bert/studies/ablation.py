"""One arm of an ablation: its params, its experiment, and the record that the study's report is made from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context, Param, task

from include.ablations import CONFIGURATIONS, EXPERIMENTS, Configuration, arm, day, find, study
from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import ARM
from include.stages import BadInput
from spark_bert.dag.assets import ABLATION_ARM
from spark_bert.dag.params import filled, form, resolve
from spark_bert.deployment.places import this_run
from spark_bert.studies.study import arm_key

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
