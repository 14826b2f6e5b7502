"""A timetable that stands for configurations: each one has a day, so that a backfill can select it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from airflow.exceptions import InvalidPartitionKeyError
from airflow.timetables.base import DagRunInfo, TimeRestriction
from airflow.timetables.trigger import CronPartitionTimetable
from pendulum import DateTime

#: The largest offset of a time zone in which the ends of a range may be midnights. In zones further ahead of UTC, or
#: more than 10.5 hours behind it, a range has to be written in UTC.
_AHEAD = timedelta(hours=13.5)


class ConfigurationTimetable(CronPartitionTimetable):
    """Maps the i-th day from `epoch` on to the partition with the i-th key of `ids`, and schedules no runs itself.

    The serialized timetable contains the keys, so that the scheduler and the API server need not read configurations.
    """

    can_be_scheduled = False

    def __init__(self, ids: Sequence[str], epoch: date) -> None:
        super().__init__("0 0 * * *", timezone="UTC")
        self._ids, self._epoch = list(ids), epoch
        self.description = f"Runs only by backfill; a backfill over {self._days()} runs these configurations"

    @property
    def summary(self) -> str:
        """The schedule that Airflow shows next to the Dag's name."""
        return f"{len(self._ids)} configurations"

    def serialize(self) -> dict[str, Any]:
        """Return the data from which `deserialize` restores the timetable."""
        return {"ids": self._ids, "epoch": self._epoch.isoformat()}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> ConfigurationTimetable:
        """Restore the timetable from the data that `serialize` returned."""
        return cls(data["ids"], date.fromisoformat(data["epoch"]))

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return None, because no run is ever due."""
        return None

    def iter_partition_dagrun_infos(self, *, earliest: datetime, latest: datetime) -> Iterable[DagRunInfo]:
        """Return the runs of the days of a range, whose first midnight tells the time zone in which its ends are."""
        first = _day(earliest + _AHEAD)
        return super().iter_partition_dagrun_infos(earliest=first, latest=_day(latest - (earliest - first)))

    def _format_key(self, partition_date: DateTime) -> str:
        """Return the day's configuration. Airflow's API turns the exception into its answer to the backfill request."""
        # Imported here because it imports Airflow's database models, which parsing a Dag must not do.
        from airflow.models.backfill import InvalidBackfillDate

        day = date(partition_date.year, partition_date.month, partition_date.day)
        index = (day - self._epoch).days
        if not 0 <= index < len(self._ids):
            raise InvalidBackfillDate(f"{day} is not the day of a configuration: choose {self._days()}")
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


def _day(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
