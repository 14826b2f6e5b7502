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
Expectations, **preprocess** it on Spark, **pretrain** the encoder on unlabeled text if there is any, **teach**: compute
the answers of a teacher if there is one, **train** the encoder, on several ranks with Horovod, **evaluate** it on the
dev split, compare its metrics with the thresholds of the **gate**, **package** the model in faster forms, **predict**
the labels of the test split and **export** the submission zip.

* If the gate fails, the run fails, and predict and export do not run. Airflow retries a stage after a crash or a lost
  process, but not after bad input or a failed gate.
* Stages reuse artifacts: a run that changes only the gate's thresholds does not train again.
* **track** writes every run to MLflow, including failed ones. If MLflow is down, a later run tracks the missing one.
* The pages of validate, evaluate, gate, package, predict and export have buttons that open what they have made.

Choose a named experiment and override any of its fields. To start a run from the command line:
`airflow dags trigger finetune --conf '{{"experiment": "sst2", "training.epochs": 1}}'`.

{explain(PARAMS)}
"""

with DAG(
    "finetune",
    description="Fine-tune a transformer encoder: from raw text to a gated model and a submission zip.",
    doc_md=DOC,
    params=PARAMS,
    schedule=None,
    max_active_runs=2,
    dagrun_timeout=timedelta(hours=24),
    default_args=DEFAULTS,
    tags=["spark-bert", "fine-tuning"],
) as dag:
    pipeline() >> announce() >> [succeeded(), track()]
