"""What the tests of compaction say most often: closed segments, runs of the job, what a consumer makes of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from reading import Topics

from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer
from sparklog.jobs.compaction import JOB
from sparklog.jobs.job import JobContext, run_job
from sparklog.jobs.options import parse_options

COMPACTED = {"cleanup_policy": "compact", "delete_retention_ms": 0, "internal_segment_bytes": 20_000}
Keyed = dict[bytes | None, bytes | None]


def send(topics: Topics, topic: str, rows: Iterable[tuple[str | None, str | None]], partition: int = 0) -> None:
    """Send keys and values, in one batch."""
    keys, values = zip(*rows, strict=True)
    table = pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())})
    topics.producer.send_table(topic, table, partition=partition).result(30)


def close_segments(topics: Topics, topic: str, partitions: Sequence[int] = (0,)) -> None:
    """Put what was sent into closed segments: a record without a key begins another one."""
    topics.admin.alter_configs(topic, set={"segment.ms": "1"})
    for partition in partitions:
        for _ in range(2):  # the second comes some milliseconds after whatever was the first in its segment
            send(topics, topic, [(None, "begins a segment")], partition)
    topics.admin.alter_configs(topic, unset=["segment.ms"])


def compact(context: JobContext, *names: str, status: int = 0, **options: Any) -> list[Row]:
    """Run the job on topics -> its rows, by topic and partition."""
    run = run_job(JOB, context, parse_options(JOB, {"topics": list(names), "force": True, **options}))
    assert run.status == status, run
    return sorted(run.rows.collect(), key=lambda row: (row.topic, row.partition))


def consume(bootstrap: str, topic: str, partition: int = 0) -> pa.Table:
    """All records of a partition."""
    place = TopicPartition(topic, partition)
    tables = []
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([place])
        consumer.seek(place, consumer.beginning_offsets([place])[place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            before = consumer.position(place)
            tables.append(consumer.poll_arrow(10_000))
            assert consumer.position(place) > before
    return pa.concat_tables(tables)


def newest(records: pa.Table) -> Keyed:
    """The table that a reader builds: the last value of each key, none where that is a tombstone."""
    table = dict(zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True))
    table.pop(None, None)
    return {key: value for key, value in table.items() if value is not None}


def rows_of(records: pa.Table) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of the records that have a key, in the order of their offsets."""
    pairs = zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True)
    return [pair for pair in pairs if pair[0] is not None]
