"""The Dag `retrain`: trains on new labeled data and promotes the model if it is good enough."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable

from spark_bert.dag.assets import DRIFTED
from spark_bert.dag.params import explain, form
from spark_bert.dag.pipeline import DEFAULTS, pipeline, stage_task, succeeded, track
from spark_bert.retrain.approval import PromotionApproval, answers
from spark_bert.retrain.drop_folder import acknowledge_event
from spark_bert.retrain.retraining import EXPERIMENT, labeled_data, news, retraining_experiment, versioned_experiment
from spark_bert.retrain.service import Rollout, Trial, undo
from spark_bert.telemetry.notices import Notice, late_after

JOIN = "none_failed_min_one_success"  # a task before this one may have been skipped
DATA = labeled_data()
PARAMS = form(EXPERIMENT, more=("dataset", "retraining"))
DOC = f"""
Trains a model when there is new labeled data, and replaces the champion if the new model is good enough.

* The Dag **starts** every Monday at 03:00 UTC, when files arrive in the drop folder of the experiment `{EXPERIMENT}`,
  when a producer updates the asset `labeled-data`, and when the rows of a stream have drifted. It is paused at first.
* **ingest** adds the new rows of the files to the dataset as a new version. It sets malformed files aside and sends a
  notice about them. The run stops if the rows have drifted too far. **news** skips the rest of the run if an earlier
  run has already reached a verdict on this version.
* The **pipeline** runs on that version, down to the package. `retraining.start` selects whether training starts from
  the encoder or from the champion's weights.
* **challenge** compares the challenger with the champion on the same dev rows. It fails if the challenger is worse by
  more than the margin, or if a slice, the latency or the size exceeds its limit.
* **register** adds the challenger to MLflow's registry. **trial** lets the deployment's service answer texts with it
  and the champion, if `retraining.trial_texts` is not 0. **approve** asks a person if `retraining.approval` is
  on or the deployment names approvers. **promote** moves the alias `champion` to the challenger, or records why not.
  **rollout** waits until the service answers with the new champion, and **rollback** undoes the promotion if it does
  not in time. `make rollback` or the Dag *rollback* does so whenever you want.

{explain(PARAMS)}
"""

with DAG(
    "retrain",
    description="Train on new labeled data and promote the model if it is good enough.",
    doc_md=DOC,
    params=PARAMS,
    schedule=AssetOrTimeSchedule(timetable=CronTriggerTimetable("0 3 * * 1", timezone="UTC"), assets=DATA | DRIFTED),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    dagrun_timeout=timedelta(days=6),
    deadline=late_after(timedelta(hours=24)),
    default_args=DEFAULTS | {"execution_timeout": timedelta(hours=24)},
    tags=["spark-bert", "retraining"],
) as dag:
    stages = pipeline(last="package", experiment_of=versioned_experiment)
    register = stage_task("register", experiment_of=versioned_experiment)
    trial = Trial(task_id="trial", doc_md="let the service answer with the challenger and the champion")
    approve = PromotionApproval(task_id="approve", doc_md="ask a person if the experiment says so", trigger_rule=JOIN)
    promote = stage_task(
        "promote", experiment_of=versioned_experiment, told=answers, trigger_rule=JOIN,
        on_success_callback=Notice("promotion"),
    )  # fmt: skip
    ingest = stage_task(
        "ingest", experiment_of=retraining_experiment, inlets=[DATA], on_execute_callback=acknowledge_event,
        on_success_callback=Notice("ingest"),
    )  # fmt: skip
    ingest >> stage_task("champion", experiment_of=retraining_experiment) >> news() >> stages
    stages >> stage_task("challenge", experiment_of=versioned_experiment) >> register >> trial
    [register, trial] >> approve
    rollout = Rollout(task_id="rollout", doc_md="wait until the service answers with the new champion")
    [register, approve] >> promote >> rollout >> succeeded()
    rollout >> undo() >> track()  # reads only the form, so it needs no version
