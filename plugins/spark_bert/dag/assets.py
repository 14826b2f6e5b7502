"""The assets through which one Dag starts another."""

from __future__ import annotations

from airflow.sdk import Asset

#: Updated when an arm of an ablation has finished. The event's partition is the study and the configuration, and its
#: extra is the content of arm.json.
ABLATION_ARM = Asset("ablation-arm", uri="spark-bert://ablation-arm")

#: Updated when the Dag finetune has finished, so that its model has passed the gate. The event's extra names the
#: task and the run; its partition is the task, if that is one that glue_submission waits for.
FINETUNED = Asset("finetuned", uri="spark-bert://finetuned")

#: Updated when the rows of a stream have drifted. The event's extra names the stream and has the windows that drifted.
DRIFTED = Asset("drifted", uri="spark-bert://drifted")
