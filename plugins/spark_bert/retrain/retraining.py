"""The decisions of the Dag `retrain`: when it starts, what it trains, and whether there is anything new."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

from airflow.sdk import Asset, Context, task
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import ValidationError

from include.experiment import Experiment
from include.named_experiments import changed, load, require_threshold
from include.runs import Run
from include.stages import BadInput, ExitCode
from spark_bert.dag.params import from_form
from spark_bert.deployment.places import home, this_run
from spark_bert.retrain.drop_folder import arriving_files

#: The experiment that is trained by default. Airflow watches its drop folder and the folder of its stream.
EXPERIMENT = "retrain"
_BESIDE = ("runtime", "scoring", "serving", "streaming")  # sections that say nothing about the model
#: The variable with the approvers of promotions: ids of Airflow users, separated by commas. Without it, every user who
#: may act on the Dag can approve. Experiments cannot name approvers: those who trigger a run could name themselves.
APPROVERS = "SPARK_BERT_APPROVERS"

log = logging.getLogger(__name__)


def labeled_data() -> Asset:
    """Return the asset of new labeled rows."""
    return arriving_files("labeled-data", load(EXPERIMENT).dataset.drop)


def approvers() -> list[str]:
    """Return the ids of the users who may approve promotions. The list is empty if the deployment names none."""
    return [name.strip() for name in os.environ.get(APPROVERS, "").split(",") if name.strip()]


def retraining_experiment(context: Context) -> Experiment:
    """Return the run's experiment. It always requires approval if the deployment names approvers."""
    experiment = require_threshold(from_form(context), stated=True)
    if not approvers():
        return experiment
    return changed(experiment, {"retraining.approval": True}, "the retraining")


def versioned_experiment(context: Context) -> Experiment:
    """Return the run's experiment with the dataset version that ingest has made."""
    wanted, stages = retraining_experiment(context), this_run(context).record()["stages"]
    ingested = stages.get("ingest", {}).get("result", {})
    if "data" not in ingested:  # ingest returns a result even when it refuses the data
        raise BadInput("this run has no version of the dataset: clear its Airflow task ingest")
    if wanted.preprocessing.resplit:
        raise BadInput(
            "preprocessing.resplit selects new dev rows from every version, but the champion was trained on some of "
            "them and cannot be compared on them: write preprocessing.resplit: false"
        )
    # A stage says this. It could not do without the approvers, or have another model replaced.
    changes = {name: value for name, value in ingested["data"].items() if name.startswith("data.")}
    changes["data.task"] = wanted.data.task
    champion = stages.get("champion", {}).get("result", {}).get("folder")
    if wanted.retraining.start == "champion" and champion:
        changes["model.name"] = champion
    return changed(wanted, changes, "the retraining")


@task(
    task_id="news",
    doc_md="skip the rest of the run if an earlier run has reached a verdict on the same data and experiment",
)
def news(**context: Any) -> str:
    """Return the path of the dataset version to train on, or skip the rest of the run if there is nothing new."""
    wanted = versioned_experiment(context)  # type: ignore[arg-type]  # a Context, as keywords
    begins_with_champion = wanted.model.name != from_form(context).model.name  # type: ignore[arg-type]
    for earlier in _judged(this_run(context)):
        if _same(earlier["experiment"], wanted, begins_with_champion):
            raise AirflowSkipException(
                f"nothing new: the run {earlier['run']} has reached a verdict on this version of the data, "
                f"{wanted.data.path}, with the same experiment"
            )
    return wanted.data.path


def _judged(run: Run) -> Iterator[dict[str, Any]]:
    """Yield the records of the other runs whose gate or challenge has failed, or whose promote has decided."""
    for file in sorted((home() / "runs").glob("*/run.json")):
        try:
            record = Run(file.parent).record()
        except (BadInput, OSError) as error:
            log.warning("ignoring a run whose record cannot be read: %s", error)
            continue
        stages = record["stages"]
        refused = any(stages.get(name, {}).get("exit_code") == ExitCode.GATE_FAILED for name in ("gate", "challenge"))
        if file != run.file and "ingest" in stages and (refused or stages.get("promote", {}).get("key")):
            yield record


def _same(recorded: dict[str, Any], wanted: Experiment, begins_with_champion: bool) -> bool:
    """Return whether a run's experiment makes the same model, apart from the champion to start from."""
    try:
        # A field that is newer than the run had its default.
        recorded = Experiment.model_validate(recorded).model_dump(mode="json")
    except ValidationError:
        return False
    whole = wanted.model_dump(mode="json")
    if begins_with_champion:
        whole["model"]["name"] = recorded["model"]["name"]
    beside = dict.fromkeys(_BESIDE)
    return {**recorded, **beside} == {**whole, **beside}
