"""Cron lines: ``minute hour day month weekday`` as in crontab(5), or six fields, with the second first.

    15 * * * *          at a quarter past every hour
    0 3 * * mon-fri     at three on working days; numbers are crontab's: 0 and 7 are Sunday
    */10 * * * * *      every ten seconds

When the end of summer time repeats an hour, a line with fixed hours is due only the first time, as with cron. A line
with `*` or `*/n` as its hour is due both times.

Differs from cron: a line with both a day of the month and a weekday selects the days that match both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from apscheduler.triggers.cron import CronTrigger

from sparklog.base.errors import ConfigError

WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAYS = re.compile(r"(?P<first>\*|\d|[a-z]{3})(-(?P<last>\d|[a-z]{3}))?(/(?P<step>\d+))?")
_EVERY_HOUR = re.compile(r"\*(/\d+)?")


class _FixedHoursTrigger(CronTrigger):
    """A trigger that leaves out the second pass of an hour that the end of summer time repeats."""

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        due: datetime | None = super().get_next_fire_time(previous_fire_time, now)
        while due is not None and _is_repeated(due):
            due = super().get_next_fire_time(due, due)
        return due


def parse_cron(line: str, timezone: str) -> CronTrigger:
    """Return the trigger for a line. Raises ConfigError if it is not a cron line, or the time zone does not exist."""
    fields = line.split()
    if len(fields) not in (5, 6):
        raise ConfigError(f"{line!r}: a cron line has five fields, or six with seconds before them")
    second, minute, hour, day, month, weekday = fields if len(fields) == 6 else ["0", *fields]
    trigger = CronTrigger if _EVERY_HOUR.fullmatch(hour) else _FixedHoursTrigger
    try:
        return trigger(
            second=second, minute=minute, hour=hour, day=day, month=month.lower(), day_of_week=_weekdays(weekday),
            timezone=timezone,
        )  # fmt: skip
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{line!r} in time zone {timezone}: {error}") from None


def _is_repeated(time: datetime) -> bool:
    """Return whether this is the second time that clocks show this hour."""
    return time.fold == 1 and time.utcoffset() != time.replace(fold=0).utcoffset()


def _weekdays(field: str) -> str:
    """Return the field with names only: the scheduler numbers weekdays from Monday, crontab from Sunday."""
    if field == "*":
        return field
    return ",".join(
        WEEKDAYS[number] for number in sorted({day for part in field.split(",") for day in _weekday_numbers(part)})
    )


def _weekday_numbers(part: str) -> Iterator[int]:
    found = _DAYS.fullmatch(part.lower())
    if not found:
        raise ValueError(f"{part!r} is no weekday")
    if found["first"] == "*":
        first, last = 0, 6
    else:
        first = _weekday_number(found["first"])
        last = _weekday_number(found["last"]) if found["last"] else 6 if found["step"] else first
    step = int(found["step"] or 1)
    if first > last or not step:
        raise ValueError(f"{part!r} is no range of weekdays")
    yield from (day % 7 for day in range(first, last + 1, step))


def _weekday_number(text: str) -> int:
    if text.isdigit() and int(text) <= 7:
        return int(text)
    return WEEKDAYS.index(text)
