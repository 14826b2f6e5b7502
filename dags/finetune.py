"""The Dag `finetune`: the pipeline from raw text to a gated model and a submission zip."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from spark_bert.dag.params import explain, form
from spark_bert.dag.pipeline import DEFAULTS, pipeline, succeeded, track
from spark_bert.studies.submission import announce

PARAMS = form()
DOC = f"""
Fine-tunes a transformer encoder and exports its predictions. The stages **validate** the raw text with Great
Expectations, **preprocess** it on Spark, **pretrain** the encoder on unlabeled text if there is any, **train** it, on
several ranks with Horovod, **evaluate** it on the dev split, compare its metrics with the thresholds of the **gate**,
**package** the model in faster forms, **predict** the labels of the test split and **export** the submission zip.

* When the gate fails, the run fails, and predict and export do not run. Airflow does not retry a stage after bad input
  or a failed gate. It does retry a stage after a crash or a lost process.
* Stages reuse artifacts: a run that changes only the gate's thresholds does not train again.
* **track** writes every run to MLflow, including failed ones. While MLflow is down, track fails without changing the
  state of the run, and a later run tracks the missing one.
* The pages of validate, evaluate, gate, package, predict and export have buttons that open the Data Docs, the report,
  the verdict, the package, the predictions and the submission.

Choose a named experiment and override any of its fields. An empty field keeps the value of the experiment. To start
a run from the command line, write:
`airflow dags trigger finetune --conf '{{"experiment": "sst2", "training.epochs": 1}}'`.

{explain(PARAMS)}
"""

with DAG(
    "finetune",
    description="Fine-tune a transformer encoder: from raw text to a gated model and a submission zip.",
    doc_md=DOC,
    params=PARAMS,
    schedule=None,
    catchup=False,
    max_active_runs=2,
    dagrun_timeout=timedelta(hours=24),
    default_args=DEFAULTS,
    tags=["spark-bert", "fine-tuning"],
) as dag:
    pipeline() >> announce() >> [succeeded(), track()]
