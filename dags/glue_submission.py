"""The Dag glue_submission: GLUE's one zip, out of runs that have passed their gates."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, FixedKeyMapper, Param, PartitionedAssetTimetable, RollupMapper, SegmentWindow

from spark_bert.assets import FINETUNED
from spark_bert.params import explain
from spark_bert.pipeline import DEFAULTS, stage_task
from spark_bert.submission import TASKS, choose, chosen_runs

PARAMS = {
    "runs": Param(
        [],
        title="Runs",
        type="array",
        items={"type": "string"},
        description_md="Folders below `runs/`, one a task, whose predictions go into the zip. Empty: the newest run of "
        f"each of {', '.join(TASKS)} that has passed its gate. Default: `[]`.",
    )
}

DOC = f"""
Puts the predictions of several tasks into the one zip that GLUE's server wants. Tasks without a run hold placeholders,
and `submission.json` beside the zip says which, and from which run each file came.

It starts by itself when *finetune* has ended with a model for each of {", ".join(TASKS)} since it last did. Every
event of the asset `finetuned` names the exact run that it came from, and the newest of each task is taken. Trigger it
by hand for what is there.

{explain(PARAMS)}
"""

with DAG(
    "glue_submission",
    description="GLUE's one zip, when SST-2, CoLA and STS-B have passed their gates.",
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
    choose() >> stage_task("export", experiment_of=chosen_runs)
