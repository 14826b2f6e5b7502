"""Which study a run of the Dag study is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from include.experiment import Experiment
from include.named import build
from include.stages import BadInput
from spark_bert.assets import ABLATION_ARM


def asked_study(context: Context) -> Experiment:
    """The param `study`, else the one whose arms started the run, else that of the newest arm.

    Raises BadInput when there is none. The task needs the asset as its inlet.
    """
    name = context["params"]["study"] or context["dag_run"].partition_key or _newest(context)
    return build({"study": {"name": name}}, "the study")


def _newest(context: Context) -> str:
    events: Sequence[Any] = context["inlet_events"][ABLATION_ARM]
    if not len(events):
        raise BadInput("no arm has been trained yet: run the Dag ablation first, or write a study's name in study")
    name = max(events, key=lambda event: event.timestamp).extra.get("study")
    if not name:
        raise BadInput(f"the newest event of {ABLATION_ARM.name} names no study: write the study's name in study")
    return str(name)
