"""The age of what an archive lacks: one look at the first record of each partition there."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer

TIMEOUT_MS = 10_000
"""How long to look for all partitions together: the lag is not worth a longer wait."""
POLL_MS = 500
FETCH_BYTES = 16 << 10
"""Bytes of one partition; a first batch that is larger comes whole."""
logger = logging.getLogger(__name__)


def oldest_records(
    client: Mapping[str, Any], ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int | None]:
    """Return the timestamp in ms of the first record of each range of offsets; None if a range has no record.

    Offsets may have no record: compaction removes some, and markers of transactions are none. Records of open
    transactions count. Partitions that are not read within `TIMEOUT_MS`, or at all, are left out, with a warning.
    """
    found: dict[TopicPartition, int | None] = {}
    if not ranges:
        return found
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    try:
        with Consumer(
            **client,
            auto_offset_reset="earliest",  # what retention has deleted meanwhile is not there to be archived
            isolation_level="read_uncommitted",
            max_partition_fetch_bytes=FETCH_BYTES,
            prefetch_max_bytes=1,
        ) as consumer:
            consumer.assign(ranges)
            for partition, (start, _) in ranges.items():
                consumer.seek(partition, start)
            while len(found) < len(ranges) and time.monotonic() < deadline:
                _take(consumer, ranges, found)
    except SparklogError as error:
        logger.warning("the lag of some partitions cannot be found out: %s", error)
    else:
        if missing := sorted(ranges.keys() - found.keys()):
            logger.warning("the lag of %d partitions was not found out in time, such as %s", len(missing), missing[0])
    return found


def _take(
    consumer: Consumer, ranges: Mapping[TopicPartition, tuple[int, int]], found: dict[TopicPartition, int | None]
) -> None:
    """Note the first record of partitions that the consumer has some of."""
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
        consumer.assign(left)  # a paused partition would keep what is fetched of it, and leave no room for the others
