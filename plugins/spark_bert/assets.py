"""The assets by which Dags tell each other what they made."""

from __future__ import annotations

from airflow.sdk import Asset

#: An arm of an ablation is done: the event's partition is its study and configuration, its extra what
#: arm.json says.
ABLATION_ARM = Asset("ablation-arm", uri="spark-bert://ablation-arm")

#: A pipeline has come to its end, so its model has passed its gate: the event's partition is the task, its extra names
#: the exact run.
FINETUNED = Asset("finetuned", uri="spark-bert://finetuned")
