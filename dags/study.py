"""The Dag `study`: writes the report of an ablation when all arms of table 5 are recorded, or when triggered."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param, PartitionedAssetTimetable, RollupMapper

from include.ablations import TABLE_5
from spark_bert.dag.assets import ABLATION_ARM
from spark_bert.dag.params import explain
from spark_bert.dag.pipeline import DEFAULTS, stage_task
from spark_bert.studies.ablation import StudyMapper, Table5Window, study_experiment

PARAMS = {
    "study": Param(
        "",
        title="Study",
        type="string",
        description_md="The name of the study: its task, for example `SST-2`, and a digest if all arms share "
        'overrides. If empty, the report covers the study of the newest arm. Default: **""**.',
    )
}
DOC = f"""
Compares the arms of an ablation in one report: every configuration with `{TABLE_5[0]}`, by its metric with a 95 %
confidence interval, rows per second, memory, bytes sent between the ranks and training time, and with table 5 of the
paper. The button *Study* on the page of the Airflow task opens it; study.md and study.json are in the same folder.

The Dag starts when a study has, since the Dag last started, recorded a new arm for every configuration of table 5
({", ".join(TABLE_5)}). The report covers all arms of the study, including older ones. Trigger the Dag manually to
report other arms.

{explain(PARAMS)}
"""

with DAG(
    "study",
    description="Write the report of an ablation when its arms are recorded.",
    doc_md=DOC,
    params=PARAMS,
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
    stage_task("study", inlets=[ABLATION_ARM], experiment_of=study_experiment)
