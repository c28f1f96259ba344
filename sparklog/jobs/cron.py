"""Cron lines: ``minute hour day month weekday`` as in crontab(5), or six fields, with the second first.

    15 * * * *          at a quarter past every hour
    0 3 * * mon-fri     at three on working days; numbers are crontab's: 0 and 7 are Sunday
    */10 * * * * *      every ten seconds

Differs from cron: a line with both a day of the month and a weekday selects the days that match both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from apscheduler.triggers.cron import CronTrigger

from sparklog.base.errors import ConfigError

WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAYS = re.compile(r"(?P<first>\*|\d|[a-z]{3})(-(?P<last>\d|[a-z]{3}))?(/(?P<step>\d+))?")


def parse_cron(line: str, timezone: str) -> CronTrigger:
    """Return the trigger for a line. Raises ConfigError if it is not a cron line, or the time zone does not exist."""
    fields = line.split()
    if len(fields) not in (5, 6):
        raise ConfigError(f"{line!r}: a cron line has five fields, or six with seconds before them")
    second, minute, hour, day, month, weekday = fields if len(fields) == 6 else ["0", *fields]
    try:
        return CronTrigger(
            second=second, minute=minute, hour=hour, day=day, month=month.lower(), day_of_week=_weekdays(weekday),
            timezone=timezone,
        )  # fmt: skip
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{line!r} in time zone {timezone}: {error}") from None


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
