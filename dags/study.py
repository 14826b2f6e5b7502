"""The Dag study: the report of an ablation, as soon as the arms of table 5 are in, or by hand for what is there."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param, PartitionedAssetTimetable, RollupMapper

from include.ablations import TABLE_5
from spark_bert.assets import ABLATION_ARM
from spark_bert.partitions import StudyMapper, Table5Window
from spark_bert.pipeline import DEFAULTS, stage_task
from spark_bert.study import asked_study

DOC = f"""
Puts the arms of an ablation together: each configuration's metric with a 95 % interval, rows a second, memory, bytes on
the wire and training time, each beside `{TABLE_5[0]}`, and the paper's table 5 beside ours. The page opens from the
button *Study* on the task's page; study.md and study.json lie beside it.

It starts by itself when a study has an arm of each of table 5's configurations ({", ".join(TABLE_5)}) that came in
since it last did, and reports all arms of that study, older ones too. After other arms trigger it by hand.

| parameter | default | meaning |
| --- | --- | --- |
| `study` | `""` | The study: a task as `SST-2`, and a digest where all arms share changes. Empty: of the newest arm. |
"""

with DAG(
    "study",
    description="The report of an ablation, when its arms are in.",
    doc_md=DOC,
    params={
        "study": Param(
            "",
            title="Study",
            type="string",
            description_md="The study's name: its task, as `SST-2`, and a digest where all its arms share changes. "
            "Empty: the study of the newest arm.",
        )
    },
    schedule=PartitionedAssetTimetable(
        assets=ABLATION_ARM,
        default_partition_mapper=RollupMapper(upstream_mapper=StudyMapper(), window=Table5Window()),  # type: ignore[arg-type]
    ),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=1),
    default_args=DEFAULTS,
    tags=["spark-bert", "ablation"],
) as dag:
    stage_task("study", inlets=[ABLATION_ARM], experiment_of=asked_study)
