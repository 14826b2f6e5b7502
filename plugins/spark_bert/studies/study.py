"""The choice of the study that a run of the Dag `study` reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from include.experiment import Experiment
from include.named import build
from include.stages import BadInput
from spark_bert.dag.assets import ABLATION_ARM


def study_experiment(context: Context) -> Experiment:
    """Return an experiment that names the study.

    The study is the param `study`, or the study whose arms have started the run, or the study of the newest arm. The
    Airflow task needs the asset as an inlet, because the newest arm is found through the asset's events.

    Raises:
        BadInput: if there is no study.
    """
    name = context["params"]["study"] or context["dag_run"].partition_key or _newest(context)
    return build({"study": {"name": name}}, "the study")


def _newest(context: Context) -> str:
    events: Sequence[Any] = context["inlet_events"][ABLATION_ARM]
    if not len(events):
        raise BadInput(
            "no arm has been trained yet: run the Dag ablation first, or set the param study to the name of a study"
        )
    name = max(events, key=lambda event: event.timestamp).extra.get("study")
    if not name:
        raise BadInput(
            f"the newest event of the asset {ABLATION_ARM.name} names no study: set the param study to the study's name"
        )
    return str(name)
