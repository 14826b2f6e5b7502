"""The partitions of an ablation: which study an arm belongs to, and which arms a study waits for."""

from __future__ import annotations

from airflow.partition_mappers.base import PartitionMapper
from airflow.partition_mappers.window import Window

from include.ablations import TABLE_5


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
