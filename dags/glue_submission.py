"""The Dag `glue_submission`: the submission zip for GLUE, made from runs that have passed their gates."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, FixedKeyMapper, Param, PartitionedAssetTimetable, RollupMapper, SegmentWindow

from spark_bert.dag.assets import FINETUNED
from spark_bert.dag.params import explain
from spark_bert.dag.pipeline import DEFAULTS, stage_task
from spark_bert.studies.submission import TASKS, choose, submission_experiment

PARAMS = {
    "runs": Param(
        [],
        title="Runs",
        type="array",
        items={"type": "string"},
        description_md="Names of the folders below `runs/` whose predictions go into the zip, one per task. If empty, "
        f"the newest runs of {', '.join(TASKS)} that have passed their gates are used. Default: **[]**.",
    )
}

DOC = f"""
Puts the predictions of several tasks into the single zip that the GLUE server expects, with placeholders for the tasks
without a run. `submission.json` next to the zip lists the placeholders and the run of every other file.

The Dag starts when *finetune* has produced a model for each of {", ".join(TASKS)} since the Dag last started, and takes
the newest one of each task. Trigger it manually to make a zip from the runs that exist now.

{explain(PARAMS)}
"""

with DAG(
    "glue_submission",
    description="Make the GLUE submission zip when SST-2, CoLA and STS-B have passed their gates.",
    doc_md=DOC,
    params=PARAMS,
    schedule=PartitionedAssetTimetable(
        assets=FINETUNED,
        default_partition_mapper=RollupMapper(
            upstream_mapper=FixedKeyMapper("glue"), window=SegmentWindow(list(TASKS))
        ),
    ),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=1),
    default_args=DEFAULTS,
    tags=["spark-bert", "fine-tuning"],
) as dag:
    choose() >> stage_task("export", experiment_of=submission_experiment)
