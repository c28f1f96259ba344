"""Cron lines mean what crontab(5) says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sparklog.base.errors import ConfigError
from sparklog.jobs.cron import parse_cron

FRIDAY = datetime(2026, 5, 1, 12, 0, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "next_time"),
    [
        ("*/15 * * * *", "2026-05-01T12:15:00"),
        ("0 3 * * *", "2026-05-02T03:00:00"),
        ("0 3 * * 0", "2026-05-03T03:00:00"),  # Sunday
        ("0 3 * * 7", "2026-05-03T03:00:00"),
        ("0 3 * * mon-fri", "2026-05-04T03:00:00"),
        ("0 3 * * 5-7", "2026-05-02T03:00:00"),
        ("0 3 * * 0,Wed", "2026-05-03T03:00:00"),
        ("0 3 * * */2", "2026-05-02T03:00:00"),  # Sunday, Tuesday, Thursday, Saturday
        ("0 0 1 jan *", "2027-01-01T00:00:00"),
        ("*/10 * * * * *", "2026-05-01T12:00:40"),
    ],
)
def test_a_line_is_due_when_crontab_says(line, next_time):
    assert parse_cron(line, "UTC").get_next_fire_time(None, FRIDAY) == datetime.fromisoformat(next_time + "+00:00")


def test_a_line_is_read_in_its_time_zone():
    due = parse_cron("0 3 * * *", "Europe/Berlin").get_next_fire_time(None, FRIDAY)
    assert due.astimezone(UTC) == datetime(2026, 5, 2, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "times"),
    [
        ("30 2 * * *", ["24 00:30", "25 00:30", "26 01:30"]),
        ("30 2,3 * * *", ["24 00:30", "24 01:30", "25 00:30", "25 02:30", "26 01:30", "26 02:30"]),
        ("0 5 * * *", ["24 03:00", "25 04:00", "26 04:00"]),
        ("0 */12 * * *", ["24 10:00", "24 22:00", "25 11:00", "25 23:00", "26 11:00"]),
    ],
)
def test_fixed_hours_are_due_once_when_summer_time_ends(line, times):
    trigger, now, found = parse_cron(line, "Europe/Berlin"), datetime(2026, 10, 23, 23, tzinfo=UTC), []
    due = trigger.get_next_fire_time(None, now)
    while due < datetime(2026, 10, 26, 12, tzinfo=UTC):
        found.append(f"{due.astimezone(UTC):%d %H:%M}")
        due = trigger.get_next_fire_time(due, due)
    assert found == times


def test_an_hourly_line_is_due_in_both_passes_of_a_repeated_hour():
    trigger, now = parse_cron("30 * * * *", "Europe/Berlin"), datetime(2026, 10, 25, 0, tzinfo=UTC)
    first = trigger.get_next_fire_time(None, now)
    second = trigger.get_next_fire_time(first, first)
    assert [due.astimezone(UTC).hour for due in (first, second)] == [0, 1]


@pytest.mark.parametrize("now_hour", [1, 2])
def test_a_server_that_starts_in_the_repeated_hour_goes_on_with_the_next_day_or_hour(now_hour):
    now = datetime(2026, 10, 25, now_hour, 10, tzinfo=UTC)
    assert parse_cron("30 2 * * *", "Europe/Berlin").get_next_fire_time(None, now).day == 26
    assert parse_cron("0 5 * * *", "Europe/Berlin").get_next_fire_time(None, now).astimezone(UTC).hour == 4


@pytest.mark.parametrize(
    "line", ["", "* * * *", "61 * * * *", "0 3 * * 8", "0 3 * * fri-mon", "0 3 * * noday", "0 3 * * */0", "@daily"]
)
def test_what_is_no_cron_line_is_refused(line):
    with pytest.raises(ConfigError, match=r"cron line|time zone"):
        parse_cron(line, "UTC")


def test_a_time_zone_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match="Atlantis"):
        parse_cron("0 3 * * *", "Atlantis")
