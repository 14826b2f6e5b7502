"""The assets by which Dags tell each other what they made."""

from __future__ import annotations

from airflow.sdk import Asset

#: An arm of an ablation is done: the event's partition is its configuration, its extra is what arm.json says.
ABLATION_ARM = Asset("ablation-arm", uri="spark-bert://ablation-arm")
