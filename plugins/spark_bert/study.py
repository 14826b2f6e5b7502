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
    """The param `study`; when it is empty, that of the newest arm among those that started the run, or of all.

    Raises BadInput when there is none. The task needs the asset as its inlet.
    """
    name = context["params"]["study"] or _newest(context)
    return build({"study": {"name": name}}, "the study")


def _newest(context: Context) -> str:
    started_by = context["triggering_asset_events"]
    events: Sequence[Any] = started_by[ABLATION_ARM] if len(started_by) else context["inlet_events"][ABLATION_ARM]
    if not len(events):
        raise BadInput("no arm has been trained yet: run the Dag ablation first, or write a study's name in study")
    name = max(events, key=lambda event: event.timestamp).extra.get("study")
    if not name:
        raise BadInput(f"the newest event of {ABLATION_ARM.name} names no study: write the study's name in study")
    return str(name)
