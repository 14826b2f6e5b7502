"""The Dag finetune: raw text in, gated model and submission out. Its form is made from the experiment model."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from spark_bert.params import explain, form
from spark_bert.pipeline import DEFAULTS, pipeline, track
from spark_bert.submission import announce

PARAMS = form()
DOC = f"""
Fine-tunes a transformer encoder and ships what came out of it: **validate** the raw text with Great Expectations,
**preprocess** it on Spark, **pretrain** the encoder on unlabelled text if there is any, **train** on Horovod,
**evaluate**, hold the metrics against the **gate**, **predict** the test split and **export** the submission zip.

* A failed gate ends red; predict and export do not run. Bad data and failed gates are not tried again, lost
  processes are.
* Stages share what is equal: a run that changes only the gate trains nothing.
* **track** writes every run to MLflow, failed ones too. While MLflow is down it ends red, the run's state stays what it
  is, and a later run catches it up.
* Data Docs, report, verdict, predictions and submission open from the buttons on the pages of validate, evaluate, gate,
  predict and export.

Choose a named experiment and override any field; a field left empty keeps what the experiment says. From the
command line: `airflow dags trigger finetune --conf '{{"experiment": "sst2", "training.epochs": 1}}'`.

{explain(PARAMS)}
"""

with DAG(
    "finetune",
    description="Fine-tune a transformer encoder: raw text in, gated model and submission out.",
    doc_md=DOC,
    params=PARAMS,
    schedule=None,
    catchup=False,
    max_active_runs=2,
    dagrun_timeout=timedelta(hours=24),
    default_args=DEFAULTS,
    tags=["spark-bert", "fine-tuning"],
) as dag:
    pipeline() >> announce() >> track()
