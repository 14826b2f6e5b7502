"""The Dag retrain: new labelled data in, a new champion out if it is good enough."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from spark_bert.approval import PromotionApproval
from spark_bert.drop_folder import begun
from spark_bert.notices import Notice
from spark_bert.params import explain, form
from spark_bert.pipeline import DEFAULTS, pipeline, stage_task, track
from spark_bert.retraining import EXPERIMENT, asked, labelled_data, news, on_this_version

DATA = labelled_data()
PARAMS = form(EXPERIMENT, more=("dataset", "retraining"))
DOC = f"""
Trains again when there is something to learn from, and puts the model in the champion's place if it may.

* **Starts** every Monday at 3 (UTC), and at once when files come into the drop folder of the experiment `{EXPERIMENT}`
  or a producer updates the asset `labelled-data`. It is paused until somebody turns it on.
* **ingest** adds the files' new rows to the dataset as a new version. Malformed files are set aside, and people are
  told; rows that drift too far stop the run. **news** skips the rest when this version has had its verdict.
* The **pipeline** down to its gate, on that version; `retraining.start` says whether from the encoder or from the
  champion's weights.
* **challenge** holds the model against the champion on the same dev rows: worse beyond the margin ends red, and so do a
  slice, a latency or a size out of bounds.
* **register** enters it into MLflow's registry, **approve** asks a person where `retraining.approval` is on or
  the deployment names approvers, and **promote** moves the alias `champion`, or writes down why not. `make rollback`,
  or the Dag *rollback*, moves it back.

{explain(PARAMS)}
"""

with DAG(
    "retrain",
    description="New labelled data in, a new champion out if it is good enough.",
    doc_md=DOC,
    params=PARAMS,
    schedule=AssetOrTimeSchedule(timetable=CronTriggerTimetable("0 3 * * 1", timezone="UTC"), assets=DATA),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    dagrun_timeout=timedelta(days=6),
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(hours=24),
        callback=AsyncCallback(Notice, {"event": "deadline"}),
    ),
    default_args=DEFAULTS | {"execution_timeout": timedelta(hours=24)},
    tags=["spark-bert", "retraining"],
) as dag:
    champion = stage_task("champion", experiment_of=asked)
    stages = pipeline(last="gate", experiment_of=on_this_version)
    register = stage_task("register", experiment_of=on_this_version)
    approve = PromotionApproval(task_id="approve", doc_md="ask a person, where the experiment wants it")
    promote = stage_task(
        "promote",
        experiment_of=on_this_version,
        trigger_rule="none_failed_min_one_success",
        on_success_callback=Notice("promotion"),
    )
    ingest = stage_task(
        "ingest",
        experiment_of=asked,
        inlets=[DATA],
        on_execute_callback=begun,
        on_success_callback=Notice("ingest"),
    )
    ingest >> champion >> news() >> stages
    stages >> stage_task("challenge", experiment_of=on_this_version) >> register >> approve
    [register, approve] >> promote >> track()  # also where there is no version
