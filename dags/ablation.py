"""The Dag `ablation`: a backfill runs one arm per configuration of include/ablations.yaml."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from include.ablations import CONFIGURATIONS, EPOCH, TABLE_5, day
from spark_bert.dag.params import explain
from spark_bert.dag.pipeline import DEFAULTS, one_at_a_time, pipeline, succeeded, track
from spark_bert.studies.ablation import TICK, ablation_form, arm_experiment, explain_configurations, record_arm
from spark_bert.studies.timetable import ConfigurationTimetable

PARAMS = ablation_form()
_RANGE = f"--from-date {EPOCH} --to-date {day(TABLE_5[-1])}"

DOC = f"""
Runs an ablation: one run, up to evaluate, for each configuration. Each configuration stands for one day of the table
below, and a **backfill** over a range of days selects the configurations to run. At the end of a run, the Airflow task
*arm* updates the asset `ablation-arm`, from which the Dag *study* makes its report.

```bash
# Run table 5 of the paper for one task and seed, one arm at a time so that the throughput can be compared:
airflow backfill create --dag-id ablation {_RANGE} \\
    --max-active-runs 1 --reprocess-behavior completed --dag-run-conf '{{"task": "SST-2", "seed": 1}}'
```

* Add `--dry-run` to list the runs without starting them.
* Airflow's default of `--max-active-runs` is 10, which is too many for one machine.
* Airflow identifies the runs of a backfill by their day only, not by task and seed. So `--reprocess-behavior none`, the
  default, skips every day that has ever run; `completed` runs all days, which adds a second study to the first; and
  `failed` runs the days that have never run or whose last run failed. A stage reuses its artifact if it exists.
* Only one backfill can run at a time.
* In the web page's form for a backfill, tick **{TICK}**. Without it, Airflow's page sends none of the fields below, and
  an arm without fields is refused.
* `conf` may set any of the fields below for the whole study, for example `"training.epochs": 1`, unless a configuration
  sets it.
* To run a single arm, send `POST /api/v2/dags/ablation/dagRuns` with `"partition_key": "full"` and a conf to the REST
  API.

{explain_configurations()}

{explain(PARAMS)}
"""

with DAG(
    "ablation",
    description="Run one arm per configuration of an ablation, by backfill.",
    doc_md=DOC,
    params=PARAMS,
    schedule=ConfigurationTimetable(list(CONFIGURATIONS), EPOCH),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=24),
    default_args=DEFAULTS,
    tags=["spark-bert", "ablation"],
) as dag:
    stages = pipeline(last="evaluate", experiment_of=arm_experiment)
    stages >> record_arm() >> [succeeded(), track(experiment_of=arm_experiment)]
    one_at_a_time(dag)
