"""How arms roll up into their study: which study an arm belongs to, and which arms a study waits for."""

from __future__ import annotations

from airflow.partition_mappers.base import PartitionMapper
from airflow.partition_mappers.window import Window

from include.ablations import TABLE_5


def arm_key(study: str, configuration: str) -> str:
    """The partition of an arm's event."""
    return f"{study}/{configuration}"


class StudyMapper(PartitionMapper):
    """An arm's partition to that of its study, which is the study's name."""

    def to_downstream(self, key: str) -> str | list[str]:
        """The study; none where no study waits for the arm."""
        study, _, configuration = key.rpartition("/")
        return study if study and configuration in TABLE_5 else []


class Table5Window(Window):
    """A study is in when an arm of each configuration of table 5 is, whatever its seed."""

    def to_upstream(self, decoded_downstream: str) -> list[str]:
        """The arms' partitions, of the study's."""
        return [arm_key(decoded_downstream, configuration) for configuration in TABLE_5]
