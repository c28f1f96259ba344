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
    "line", ["", "* * * *", "61 * * * *", "0 3 * * 8", "0 3 * * fri-mon", "0 3 * * noday", "0 3 * * */0", "@daily"]
)
def test_what_is_no_cron_line_is_refused(line):
    with pytest.raises(ConfigError, match=r"cron line|time zone"):
        parse_cron(line, "UTC")


def test_a_time_zone_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match="Atlantis"):
        parse_cron("0 3 * * *", "Atlantis")
