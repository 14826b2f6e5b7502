"""The Dag `score`: labels the rows of any table with the champion, or with another model."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from spark_bert.dag.params import explain, form
from spark_bert.dag.pipeline import DEFAULTS, stage_task
from spark_bert.retrain.retraining import EXPERIMENT

_FIELDS = ("scoring", "prediction", "data.label_separator", "dataset.name", "runtime.spark_master")
PARAMS = form(EXPERIMENT, only=_FIELDS)
DOC = f"""
Adds predictions to the rows of a CSV, TSV, Parquet or JSON Lines file, or of a table in a database, on Spark. All its
columns stay. Rows without a text are set aside in a file, with the reason. The buttons of the task open the files.
The model is the champion of the registry, or the folder `scoring.model`. A run that was stopped continues with the
missing parts of the table. `make score` does the same.

To start a run from the command line, write:
`airflow dags trigger score --conf '{{"scoring.input": "data/reviews.csv", "scoring.text": "review"}}'`.

{explain(PARAMS)}
"""

with DAG(
    "score",
    description="Label the rows of a table with the champion or another model.",
    doc_md=DOC,
    params=PARAMS,
    schedule=None,
    max_active_runs=2,
    dagrun_timeout=timedelta(hours=24),
    default_args=DEFAULTS,
    tags=["spark-bert", "scoring"],
) as dag:
    stage_task("score")
