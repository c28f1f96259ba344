"""How far a table is behind the partitions that it follows, for the jobs that keep tables within a target.

The lag of a partition is the age of the first record that the table lacks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
import pyarrow as pa

from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer
from sparklog.jobs.job import JobContext
from sparklog.log.description import LogDescription
from sparklog.spark.source.option_values import parse_time_ms

TIMEOUT_MS = 10_000
"""How long `oldest_records` reads, for all partitions together: the lag is not worth a longer wait."""
POLL_MS = 500
FETCH_BYTES = 16 << 10
"""Bytes to fetch of one partition; a larger first batch comes whole."""
logger = logging.getLogger(__name__)


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
    """A partition, and the offset up to which a table has it."""

    log: LogDescription
    reached: int | None = None
    """The table has the partition up to this offset; None: it has nothing of it."""
    is_trimmed: bool = False
    """Whether the log has been trimmed since the table got its first records, and the table has to follow."""
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
        """How many offsets the table lacks, including those from the first open transaction on."""
        return max(0, self.log.high_watermark - self.begin)


def lags(context: JobContext, partitions: Collection[TablePartition]) -> dict[TopicPartition, int]:
    """Return the lag of each partition in ms; 0 if the table lacks no record.

    Leaves out partitions with an error, and those whose lag cannot be determined.
    """
    known = [each for each in partitions if not each.error]
    complete = {each.log.partition: 0 for each in known if not each.left}
    behind = {each.log.partition: (each.begin, each.log.high_watermark) for each in known if each.left}
    found = oldest_records(context.client, behind)
    now_ms = context.now_ms
    return complete | {name: 0 if time_ms is None else max(0, now_ms - time_ms) for name, time_ms in found.items()}


def oldest_records(
    client: Mapping[str, Any], ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int | None]:
    """Return the timestamp in ms of the first record of each range of offsets; None if a range has no record.

    A range may have no record: compaction removes records, and offsets of transaction markers have none. Records of
    open transactions count. Partitions that cannot be read within `TIMEOUT_MS` are left out, with a warning.
    """
    found: dict[TopicPartition, int | None] = {}
    if not ranges:
        return found
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    try:
        with Consumer(
            **client,
            auto_offset_reset="earliest",  # the table cannot get what retention has deleted meanwhile
            isolation_level="read_uncommitted",
            max_partition_fetch_bytes=FETCH_BYTES,
            prefetch_max_bytes=1,
        ) as consumer:
            consumer.assign(ranges)
            for partition, (start, _) in ranges.items():
                consumer.seek(partition, start)
            while len(found) < len(ranges) and time.monotonic() < deadline:
                _note_first_records(consumer, ranges, found)
    except SparklogError as error:
        logger.warning("the lag of some partitions cannot be found out: %s", error)
    else:
        if missing := sorted(ranges.keys() - found.keys()):
            logger.warning("the lag of %d partitions was not found out in time, such as %s", len(missing), missing[0])
    return found


def _note_first_records(
    consumer: Consumer, ranges: Mapping[TopicPartition, tuple[int, int]], found: dict[TopicPartition, int | None]
) -> None:
    """Poll once; add to `found` the timestamps of the partitions that have a record or whose range has ended."""
    table = consumer.poll_arrow(POLL_MS)
    names = ["topic", "partition"]
    first = table.select([*names, "timestamp"]).group_by(names, use_threads=False).aggregate([("timestamp", "first")])
    times_ms = first["timestamp_first"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    for topic, partition, time_ms in zip(first["topic"], first["partition"], times_ms, strict=True):
        found.setdefault(TopicPartition(topic.as_py(), partition.as_py()), time_ms.as_py())
    for name in ranges.keys() - found.keys():
        if consumer.position(name) >= ranges[name][1]:
            found[name] = None
    if left := ranges.keys() - found.keys():
        consumer.assign(left)  # a paused partition would keep its fetched bytes, and leave no room for the others


def is_due(partition: TablePartition, lag_ms: int | None, target_ms: int) -> bool:
    """Return whether there is something to do, or to report."""
    return bool(partition.error or partition.offsets or partition.is_trimmed) or (
        lag_ms is not None and lag_ms > target_ms
    )


def reason_of(partition: TablePartition, lag_ms: int | None) -> str:
    """Return the reason for work on a partition: the offsets that the table lacks."""
    if partition.error:
        return partition.error
    texts = list(_missing_texts(partition, lag_ms)) if partition.left else []
    if partition.is_trimmed:
        texts.append(f"the log begins at {partition.log.log_start_offset} now, and so will the table")
    return "; ".join(texts) or "nothing to do"


def age_on_arrival(reached: int | None, offsets: int, lag_ms: int | None, took_ms: int) -> int:
    """Return the age in ms of the first new record when a run that took `took_ms` wrote it to the table.

    reached, offsets, lag_ms: from the plan
    Returns 0 if there was nothing to do. Returns 0 for a partition's first run too: it has to catch up, and only the
    records that it leaves count.
    """
    return 0 if reached is None or not offsets or lag_ms is None else lag_ms + took_ms


def missed_target(age_ms: int, after: TablePartition | None, lag_ms: int | None, target_ms: int) -> str:
    """Return where a run missed the target; empty if it did not.

    age_ms: from `age_on_arrival`
    after, lag_ms: the partition and its lag after the run, if known
    """
    missed = []
    if age_ms > target_ms:
        missed.append(
            f"a record was {seconds_text(age_ms)} old when it came into the table, "
            f"the target is {seconds_text(target_ms)}"
        )
    if after and lag_ms is not None and lag_ms > target_ms:
        missed += _missing_texts(after, lag_ms)
    return "; ".join(missed)


def seconds_text(time_ms: int) -> str:
    """Return a time in ms as text: seconds to a tenth."""
    return f"{time_ms / 1000:.1f} s"


def _missing_texts(partition: TablePartition, lag_ms: int | None) -> Iterator[str]:
    """Yield texts about the offsets that the table lacks, and about an open transaction."""
    age = "of unknown age" if lag_ms is None else f"the first is {seconds_text(lag_ms)} old"
    yield f"{partition.left} offsets are not in the table, {age}"
    if partition.log.last_stable_offset < partition.log.high_watermark:
        yield f"an open transaction holds back the offsets from {partition.log.last_stable_offset} on"
