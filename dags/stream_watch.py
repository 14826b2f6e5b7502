"""The Dag `stream_watch`: watches a continuous stream, which a service runs."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from spark_bert.dag.params import explain, form
from spark_bert.dag.pipeline import DEFAULTS
from spark_bert.retrain.retraining import EXPERIMENT
from spark_bert.streams.streaming import StreamWatch, drifted

PARAMS = form(EXPERIMENT, only=("streaming.name",))
DOC = f"""
Watches a stream that runs until it is stopped. A service, such as that of the platform, runs it; the Dag does not
start it. Once the Dag is active, there is always one run.

* **watch** logs what the stream does. It fails if the stream does not show that it is alive, or has failed; one outage
  fails one run, and the next waits for its end. It succeeds when rows have drifted, when the stream was stopped, and
  after six hours at the latest. The next run continues.
* **drifted** sends a notice and updates the asset `drifted`, which starts *retrain*. It is skipped if nothing drifted.

{explain(PARAMS)}
"""

with DAG(
    "stream_watch",
    description="Watch a continuous stream, which a service runs.",
    doc_md=DOC,
    params=PARAMS,
    schedule="@continuous",
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    dagrun_timeout=timedelta(hours=24),
    default_args=DEFAULTS,
    tags=["spark-bert", "scoring"],
) as dag:
    watch = StreamWatch(task_id="watch", doc_md="watch the stream until rows drift or it is stopped")
    drifted(watch.output)
