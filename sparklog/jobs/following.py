"""What the jobs that keep tables no further behind than a target share: the lag, and what is said of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import click

from sparklog.base.ids import TopicPartition
from sparklog.jobs.archive_lag import oldest_records
from sparklog.jobs.job import JobContext
from sparklog.log.description import LogDescription
from sparklog.spark.source.quantities import parse_time_ms


class _TimeType(click.ParamType[int]):
    """A time with a unit; its value is in ms."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else parse_time_ms(value)
        except (ValueError, KeyError):
            self.fail(f"{value!r}: it must be a time such as 60s, 5m or 1500ms", param, ctx)


def lag_option() -> click.Option:
    """Return the option that names the target."""
    return click.Option(
        ["--lag-target"],
        type=_TimeType(),
        default="60s",
        show_default=True,
        metavar="TIME",
        help="Report records that were older when they came into the table, and older ones that are not there.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePartition:
    """A partition that a table follows."""

    log: LogDescription
    reached: int | None = None
    """The offset up to which the table has the partition; None: it has nothing of it."""
    error: str = ""

    @property
    def begin(self) -> int:
        """The first offset that the table lacks and the log still has."""
        return max(self.reached or 0, self.log.log_start_offset)

    @property
    def offsets(self) -> int:
        """How many offsets the table can get now."""
        return max(0, self.log.last_stable_offset - self.begin)

    @property
    def left(self) -> int:
        """How many offsets the table lacks; it cannot get those from the first open transaction on yet."""
        return max(0, self.log.high_watermark - self.begin)


def lags(context: JobContext, partitions: Collection[TablePartition]) -> dict[TopicPartition, int]:
    """Return the age in ms of the first record that the table lacks, of each partition; 0 if it lacks none.

    Partitions with an error, and those whose lag cannot be found out, are left out.
    """
    known = [each for each in partitions if not each.error]
    complete = {each.log.partition: 0 for each in known if not each.left}
    behind = {each.log.partition: (each.begin, each.log.high_watermark) for each in known if each.left}
    found = oldest_records(context.client, behind)
    now_ms = context.now_ms
    return complete | {name: 0 if time_ms is None else max(0, now_ms - time_ms) for name, time_ms in found.items()}


def is_due(partition: TablePartition, lag_ms: int | None, target_ms: int) -> bool:
    """Return whether there is something to do, or to report."""
    return bool(partition.error or partition.offsets) or (lag_ms is not None and lag_ms > target_ms)


def reason_of(partition: TablePartition, lag_ms: int | None) -> str:
    """Return what the table lacks of a partition."""
    if partition.error:
        return partition.error
    return "; ".join(_behind(partition, lag_ms)) if partition.left else "nothing to do"


def waited(reached: int | None, offsets: int, lag_ms: int | None, took_ms: int) -> int:
    """Return how old the first record was, in ms, when it came into the table in a run that took `took_ms`.

    reached, offsets, lag_ms: of the plan. Returns 0 if there was nothing to do, and for the first run of a partition,
    which has to catch up: only what it leaves counts.
    """
    return 0 if reached is None or not offsets or lag_ms is None else lag_ms + took_ms


def lateness(waited_ms: int, after: TablePartition | None, lag_ms: int | None, target_ms: int) -> str:
    """Return where a run missed the target; empty if it did not.

    waited_ms: as `waited` returns it
    after, lag_ms: the partition and its lag after the run, if known
    """
    missed = []
    if waited_ms > target_ms:
        missed.append(
            f"a record was {seconds(waited_ms)} old when it came into the table, the target is {seconds(target_ms)}"
        )
    if after and lag_ms is not None and lag_ms > target_ms:
        missed += _behind(after, lag_ms)
    return "; ".join(missed)


def seconds(time_ms: int) -> str:
    """Return a time in ms as text for people: seconds to a tenth."""
    return f"{time_ms / 1000:.1f} s"


def _behind(partition: TablePartition, lag_ms: int | None) -> Iterator[str]:
    """Yield what the table lacks, and what holds it back."""
    age = "of unknown age" if lag_ms is None else f"the first is {seconds(lag_ms)} old"
    yield f"{partition.left} offsets are not in the table, {age}"
    if partition.log.last_stable_offset < partition.log.high_watermark:
        yield f"an open transaction holds back the offsets from {partition.log.last_stable_offset} on"
