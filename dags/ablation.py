"""The Dag ablation: a backfill runs one arm for each configuration of include/ablations.yaml."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from include.ablations import CONFIGURATIONS, EPOCH, TABLE_5, day
from spark_bert.ablation import ablation_form, arm_experiment, arm_is_in, explain_configurations
from spark_bert.params import explain
from spark_bert.pipeline import DEFAULTS, pipeline, track
from spark_bert.timetable import ConfigurationTimetable

PARAMS = ablation_form()
_RANGE = f"--from-date {EPOCH} --to-date {day(TABLE_5[-1])}"

DOC = f"""
Runs an ablation: one run for each configuration, which is a day below. Never by itself; a **backfill** chooses the days
(time zone UTC). Every run validates, preprocesses, trains and evaluates; the task *arm* then writes `arm.json` into
the run's folder and updates the asset `ablation-arm`, from which the study is made.

```bash
# the papers' table 5 on one task and seed, an arm at a time, so that speeds can be compared
airflow backfill create --dag-id ablation {_RANGE} \\
    --max-active-runs 1 --reprocess-behavior completed --dag-run-conf '{{"task": "SST-2", "seed": 1}}'
# what would run: add
    --dry-run
# only the arms whose last run failed, after the cause is gone: the same with
    --reprocess-behavior failed
```

* `--max-active-runs` is how many arms run at once: 10 if it is left out, which is too many for one machine.
* `--reprocess-behavior`: Airflow knows a run by its day alone. `none` (the default) leaves out every day that ever ran,
  whatever its task and seed; `completed` runs all, so a second study lies beside the first; `failed` those that
  failed last. What an earlier run has made already is found, not made again: a stage then takes seconds.
* One backfill at a time; a second one is refused until the first has ended or is cancelled.
* `conf` may hold any field below for the whole study, as `"training.epochs": 1`, unless a configuration sets it.
* One arm by hand: the REST API's `POST /api/v2/dags/ablation/dagRuns` with `"partition_key": "full"`.

{explain_configurations()}

{explain(PARAMS)}
"""

with DAG(
    "ablation",
    description="One run for each configuration of an ablation, by backfill.",
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
    stages >> arm_is_in() >> track(experiment_of=arm_experiment)
    for shared in ("validate", "preprocess", "pretrain"):
        # One after the other over all arms: what the first has made, the others find.
        dag.get_task(shared).max_active_tis_per_dag = 1
