"""The study that a run of the Dag `study` reports: which arms it waits for, and which study it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.partition_mappers.base import PartitionMapper
from airflow.partition_mappers.window import Window
from airflow.sdk import Context

from include.ablations import TABLE_5
from include.experiment import Experiment
from include.named import build
from include.stages import BadInput
from spark_bert.dag.assets import ABLATION_ARM


def arm_key(study: str, configuration: str) -> str:
    """Return the partition key of an arm's event."""
    return f"{study}/{configuration}"


class StudyMapper(PartitionMapper):
    """Maps the partition of an arm to that of its study. The key of the latter is the study's name."""

    def to_downstream(self, key: str) -> str | list[str]:
        """Return the study, or an empty list if the arm is not part of table 5, so that no study waits for it."""
        study, _, configuration = key.rpartition("/")
        return study if study and configuration in TABLE_5 else []


class Table5Window(Window):
    """A study is complete when every configuration of table 5 has an arm, with any seed."""

    def to_upstream(self, decoded_downstream: str) -> list[str]:
        """Return the partition keys of the arms that the study waits for."""
        return [arm_key(decoded_downstream, configuration) for configuration in TABLE_5]


def study_experiment(context: Context) -> Experiment:
    """Return an experiment that names the study: the param `study`, or the one that started the run, or the newest.

    The Airflow task needs the asset as an inlet, because the newest arm is found through the asset's events.
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
