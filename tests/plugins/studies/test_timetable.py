"""The timetable of configurations: their days, what lies outside, and that nothing is ever due."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from airflow.exceptions import InvalidPartitionKeyError
from airflow.models.backfill import InvalidBackfillDate
from airflow.serialization.decoders import decode_timetable
from airflow.serialization.encoders import encode_timetable
from airflow.timetables.base import TimeRestriction

from spark_bert.studies.timetable import ConfigurationTimetable

TIMETABLE = ConfigurationTimetable(["base", "faster", "full"], date(2000, 1, 1))


def at(day: int, month: int = 1, hour: int = 0) -> datetime:
    return datetime(2000, month, day, hour, tzinfo=UTC)


def keys(earliest: datetime, latest: datetime) -> list[str | None]:
    return [info.partition_key for info in TIMETABLE.iter_partition_dagrun_infos(earliest=earliest, latest=latest)]


def test_a_backfill_has_a_run_for_each_configuration_in_order() -> None:
    assert keys(at(1), at(3)) == ["base", "faster", "full"]
    assert keys(at(2), at(2)) == ["faster"]


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "America/New_York", "UTC", "Asia/Kolkata", "Pacific/Auckland"])
@pytest.mark.parametrize("end", [{}, {"hour": 23, "minute": 59}])
def test_a_range_is_that_of_the_zone_that_the_page_shows(zone: str, end: dict[str, Any]) -> None:
    """The page sends the midnight of the first day, and the midnight or the last minute of the last one."""
    first, last = (day.replace(tzinfo=ZoneInfo(zone)) for day in (at(1), at(3)))
    assert keys(first.astimezone(UTC), last.replace(**end).astimezone(UTC)) == ["base", "faster", "full"]
    assert keys(first, first.replace(**end)) == ["base"]


@pytest.mark.parametrize(("earliest", "latest", "day"), [(at(3), at(4), 4), (at(1, 2), at(9, 2), 1)])
def test_days_beyond_the_list_are_refused(earliest: datetime, latest: datetime, day: int) -> None:
    with pytest.raises(InvalidBackfillDate, match=rf"2000-0\d-0{day} is not the day of a configuration: choose days"):
        keys(earliest, latest)


def test_days_before_the_list_are_refused() -> None:
    with pytest.raises(InvalidBackfillDate, match=r"1999-12-30 is .* from 2000-01-01 \(base\) to 2000-01-03 \(full"):
        keys(at(1) - timedelta(2), at(1))


def test_nothing_is_ever_due() -> None:
    assert TIMETABLE.periodic and TIMETABLE.partitioned and not TIMETABLE.can_be_scheduled
    for catchup in (False, True):
        restriction = TimeRestriction(None, None, catchup)
        assert TIMETABLE.next_dagrun_info_v2(last_dagrun_info=None, restriction=restriction) is None


def test_a_key_is_its_day() -> None:
    assert TIMETABLE.resolve_partition_date("faster") == at(2)
    with pytest.raises(InvalidPartitionKeyError, match="unknown configuration 'fast': write one of base, faster, full"):
        TIMETABLE.resolve_partition_date("fast")


def test_it_comes_back_from_the_database(database: None) -> None:
    again = decode_timetable(encode_timetable(TIMETABLE))
    assert isinstance(again, ConfigurationTimetable)
    assert again.serialize() == TIMETABLE.serialize()
    assert again.summary == "3 configurations" and "2000-01-01 (base) to 2000-01-03 (full)" in again.description
