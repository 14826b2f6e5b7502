"""An ablation's arm: its params, the experiment that it runs, and the record that the study is made from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context, Param, task
from airflow.sdk.exceptions import AirflowFailException

from include.ablations import CONFIGURATIONS, EXPERIMENTS, Configuration, arm, day, find, study
from include.artifacts import write_json
from include.experiment import Experiment
from include.stages import BadInput
from spark_bert.assets import ABLATION_ARM
from spark_bert.params import filled, form, resolve
from spark_bert.partitions import arm_key
from spark_bert.places import this_run

_TASK, _SEED = "task", "seed"
#: Fields of the form for which an ablation has params of its own.
_REPLACED = ("experiment", "data.task", "training.seed")


def ablation_form() -> dict[str, Param]:
    """The Dag's params: task and seed, and the form's fields, which hold for a whole study."""
    return {
        _TASK: Param(
            "movie-reviews",
            title="Task",
            type="string",
            enum=list(EXPERIMENTS),
            section="Study",
            description_md="Configurations differ from the task's named experiment. Default: `movie-reviews`.",
        ),
        _SEED: Param(
            1,
            title="Seed",
            type="integer",
            minimum=0,
            maximum=2**31 - 1,
            section="Study",
            description_md="Seed of head, dropout and order of the rows (`training.seed`). Default: `1`.",
        ),
        **{key: param for key, param in form().items() if key not in _REPLACED},
    }


def explain_configurations() -> str:
    """Markdown for the Dag's page: every configuration with its day."""
    rows = (f"| {day(row.id)} | `{row.id}` | {row.about} |" for row in CONFIGURATIONS.values())
    return "\n".join(["| day | configuration | what it is |", "| --- | --- | --- |", *rows])


def arm_experiment(context: Context) -> Experiment:
    """The experiment of the run's arm. Raises BadInput for a run without configuration, and for impossible pairs."""
    params = context["params"]
    changes = arm(_configuration(context), params[_SEED], _overrides(params))
    return resolve({"experiment": EXPERIMENTS[params[_TASK]], **changes})


@task(task_id="arm", outlets=[ABLATION_ARM], doc_md="write down that the arm is in, for the study")
def arm_is_in(**context: Any) -> dict[str, Any]:
    """Write the run's arm.json, and tell the study's Dag."""
    params = context["params"]
    try:
        configuration = _configuration(context)
    except BadInput as error:
        raise AirflowFailException(str(error)) from None
    folder = this_run(context).folder
    overrides = {key: value for key, value in _overrides(params).items() if not key.startswith("runtime.")}
    record = {
        "study": study(params[_TASK], overrides),  # where stages run changes nothing that they make
        "configuration": configuration.id,
        "task": params[_TASK],
        "seed": params[_SEED],
        "run": folder.name,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(folder / "arm.json", record)
    event = context["outlet_events"][ABLATION_ARM]
    event.add_partitions(arm_key(record["study"], configuration.id))
    event.extra = record
    return record


def _configuration(context: Mapping[str, Any] | Context) -> Configuration:
    key = context["dag_run"].partition_key
    if key is None:
        raise BadInput(
            "this run names no configuration: start a backfill over the configurations' days, or trigger one arm "
            f"through the REST API with partition_key, one of {', '.join(CONFIGURATIONS)}"
        )
    return find(key)


def _overrides(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in filled(params).items() if key not in (_TASK, _SEED)}
