"""What the Dag retrain decides: when it starts, what it trains, and whether there is anything to do."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

from airflow.sdk import Asset, AssetWatcher, Context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from include.experiment import Experiment
from include.named import build, load, merge
from include.runs import Run
from include.stages import BadInput, ExitCode
from spark_bert.drop_folder import DropFolderTrigger
from spark_bert.params import from_form
from spark_bert.places import data, home, this_run

#: The named experiment that is trained, unless a run names another; its drop folder is the one that is watched.
EXPERIMENT = "retrain"
#: Who decides about promotions, as the deployment says: ids of Airflow's users with commas between them. Without it,
#: all who may act on the Dag, where the experiment asks a person at all. No experiment names them, for whoever triggers
#: a run would name himself.
APPROVERS = "SPARK_BERT_APPROVERS"

log = logging.getLogger(__name__)


def labelled_data() -> Asset:
    """New labelled rows have come: as files in the drop folder, if any, or from a producer that updates this asset."""
    drop = load(EXPERIMENT).dataset.drop
    trigger = DropFolderTrigger(folder=str(data(drop)))
    watchers = [AssetWatcher(name="drop-folder", trigger=trigger)] if drop else []
    return Asset("labelled-data", uri="spark-bert://labelled-data", watchers=watchers)


def approvers() -> list[str]:
    """The users who decide about promotions, none unless the deployment names them."""
    return [name.strip() for name in os.environ.get(APPROVERS, "").split(",") if name.strip()]


def asked(context: Context) -> Experiment:
    """The run's experiment. Approvers whom the deployment names are asked, even if the run says otherwise.

    Raises BadInput for params that cannot be.
    """
    experiment = from_form(context)
    if not approvers():
        return experiment
    return build(merge(experiment.model_dump(mode="json"), {"retraining.approval": True}), "the retraining")


def on_this_version(context: Context) -> Experiment:
    """The experiment on the dataset version that the run's ingest ended with.

    Where it says so, training begins with the champion's weights. Raises BadInput when ingest ended without a version,
    and when the dev rows are not the same in all versions.
    """
    wanted, stages = asked(context), this_run(context).record()["stages"]
    ingested = stages.get("ingest", {}).get("result", {})
    if "data" not in ingested:  # a refusal has a result too
        raise BadInput("this run has no version of the dataset: clear its task ingest")
    if wanted.preprocessing.resplit:
        raise BadInput(
            "preprocessing.resplit cuts other dev rows out of every version, and the champion was trained on some of "
            "them: write preprocessing.resplit: false"
        )
    changes = dict(ingested["data"])
    champion = stages.get("champion", {}).get("result", {}).get("folder")
    if wanted.retraining.start == "champion" and champion:
        changes["model.name"] = champion
    return build(merge(wanted.model_dump(mode="json"), changes), "the retraining")


@task(task_id="news", doc_md="skip the run where nothing has changed since an earlier one came to its verdict")
def news(**context: Any) -> str:
    """The dataset version that is to be trained on."""
    try:
        wanted = on_this_version(context)  # type: ignore[arg-type]  # a Context, as keywords
    except BadInput as error:
        raise AirflowFailException(str(error)) from None
    begins_with_champion = wanted.model.name != from_form(context).model.name  # type: ignore[arg-type]
    for earlier in _judged(this_run(context)):
        if _same(earlier["experiment"], wanted, begins_with_champion):
            raise AirflowSkipException(
                f"nothing new: the run {earlier['run']} has had its verdict on this version of the data, "
                f"{wanted.data.path}, with the same experiment"
            )
    return wanted.data.path


def _judged(run: Run) -> Iterator[dict[str, Any]]:
    """Records of the other retrainings that ended with a verdict: gate or challenge refused, or promote decided.

    What broke off is to be done again, and of a record that cannot be read nothing is known.
    """
    for file in sorted((home() / "runs").glob("*/run.json")):
        try:
            record = Run(file.parent).record()
        except (BadInput, OSError) as error:
            log.warning("not looked at: %s", error)
            continue
        stages = record["stages"]
        refused = any(stages.get(name, {}).get("exit_code") == ExitCode.GATE_FAILED for name in ("gate", "challenge"))
        if file != run.file and "ingest" in stages and (refused or stages.get("promote", {}).get("key")):
            yield record


def _same(recorded: dict[str, Any], wanted: Experiment, begins_with_champion: bool) -> bool:
    """Whether a run was of this experiment, wherever it ran; another champion to begin with makes no other one."""
    whole = wanted.model_dump(mode="json")
    if begins_with_champion:
        whole["model"]["name"] = recorded["model"]["name"]
    return {**recorded, "runtime": None} == {**whole, "runtime": None}
