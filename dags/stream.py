"""The Dag `stream`: labels the rows that have arrived, each once."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from spark_bert.dag.params import explain, form
from spark_bert.dag.pipeline import DEFAULTS, stage_task
from spark_bert.retrain.drop_folder import acknowledge_event
from spark_bert.retrain.retraining import EXPERIMENT
from spark_bert.streams.streaming import drifted, incoming_rows, stream_experiment

ROWS = incoming_rows()
_FIELDS = ("streaming", "prediction", "dataset.name", "runtime.spark_master")
_DRIFT = ("dataset.max_label_drift", "dataset.max_length_drift", "dataset.max_vocabulary_drift")
PARAMS = form(EXPERIMENT, only=(*_FIELDS, *_DRIFT))
for continuous in ("streaming.continuous", "streaming.interval"):
    del PARAMS[continuous]  # because a run ends
DOC = f"""
Labels the rows that have arrived since the last run, on Spark, each exactly once. The model is the champion of the
registry, or the folder `streaming.model`. The labeled rows are in `streams/NAME/batches` in the home.

* A run **starts** when files arrive in the folder of the stream of the experiment `{EXPERIMENT}`, or when you trigger
  it, for example for a topic of Kafka. The Dag is paused at first.
* **stream** labels the rows. A run that was stopped continues with the missing batch. If a continuous stream of the
  same name runs, such as the platform's service, it is refused: one process works on a stream at a time.
* **drifted** sends a notice and updates the asset `drifted`, which starts *retrain*, if the rows of a window differ
  from those of the training by more than the limits of the section dataset. Otherwise it is skipped.

{explain(PARAMS)}
"""

with DAG(
    "stream",
    description="Label the rows that have arrived, each once.",
    doc_md=DOC,
    params=PARAMS,
    schedule=ROWS,
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    dagrun_timeout=timedelta(hours=24),
    default_args=DEFAULTS,
    tags=["spark-bert", "scoring"],
) as dag:
    stream = stage_task("stream", experiment_of=stream_experiment, inlets=[ROWS], on_execute_callback=acknowledge_event)
    drifted(stream.output)
