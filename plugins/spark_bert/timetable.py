"""A timetable of configurations instead of times: a day each, for backfills to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

from airflow.exceptions import InvalidPartitionKeyError
from airflow.timetables.base import DagRunInfo, TimeRestriction
from airflow.timetables.trigger import CronPartitionTimetable
from pendulum import DateTime


class ConfigurationTimetable(CronPartitionTimetable):
    """The i-th day from `epoch` on is the partition whose key is the i-th of `ids`. It never runs by itself.

    It carries the list that its Dag was parsed with, so that scheduler and API server need not read it themselves.
    """

    can_be_scheduled = False

    def __init__(self, ids: Sequence[str], epoch: date) -> None:
        super().__init__("0 0 * * *", timezone="UTC")
        self._ids, self._epoch = list(ids), epoch
        self.description = f"Never by itself; a backfill of {self._days()} runs these configurations"

    @property
    def summary(self) -> str:
        """What stands beside the Dag's name."""
        return f"{len(self._ids)} configurations"

    def serialize(self) -> dict[str, Any]:
        """What `deserialize` needs."""
        return {"ids": self._ids, "epoch": self._epoch.isoformat()}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> ConfigurationTimetable:
        """The timetable that was serialized."""
        return cls(data["ids"], date.fromisoformat(data["epoch"]))

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Nothing is ever due."""
        return None

    def _format_key(self, partition_date: DateTime) -> str:
        """The day's configuration. Raises what Airflow turns into an answer to whoever asked for the backfill."""
        from airflow.models.backfill import InvalidBackfillDate  # needs the database's models: not while parsing

        day = date(partition_date.year, partition_date.month, partition_date.day)
        index = (day - self._epoch).days
        if not 0 <= index < len(self._ids):
            raise InvalidBackfillDate(f"{day} is no configuration's day: write {self._days()}")
        return self._ids[index]

    def _decode_partition_date(self, partition_key: str) -> datetime:
        if partition_key not in self._ids:
            known = ", ".join(self._ids)
            raise InvalidPartitionKeyError(f"unknown configuration {partition_key!r}: write one of {known}")
        day = self._epoch + timedelta(self._ids.index(partition_key))
        return DateTime(day.year, day.month, day.day, tzinfo=self._timezone)

    def _days(self) -> str:
        last = self._epoch + timedelta(len(self._ids) - 1)
        return f"days from {self._epoch} ({self._ids[0]}) to {last} ({self._ids[-1]})"
