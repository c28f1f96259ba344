"""What the tests of compaction say most often: closed segments, runs of the job, what a consumer makes of a topic."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer, Maintenance, Producer
from sparklog.jobs.compaction import HOLDER, JOB
from sparklog.jobs.job import JobContext, run_job
from sparklog.jobs.options import parse_options
from sparklog.log.compaction import CompactionPlan, plan_compaction
from sparklog.log.description import LogDescription
from sparklog.spark.compaction.work import CompactionSettings, PartitionWork
from support.patience import PATIENCE_S
from support.spark_topics import Topics

COMPACTED = {"cleanup_policy": "compact", "delete_retention_ms": 0, "internal_segment_bytes": 20_000}
NOW_MS = int(time.time() * 1000)
ROOM_FOR_ALL, ROOM_FOR_FEW = 1 << 20, 1 << 12
KEYS = 300
Keyed = dict[bytes | None, bytes | None]


def send(topics: Topics, topic: str, rows: Iterable[tuple[str | None, str | None]], partition: int = 0) -> None:
    """Send keys and values, in one batch."""
    keys, values = zip(*rows, strict=True)
    table = pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())})
    topics.producer.send_table(topic, table, partition=partition).result(PATIENCE_S)


def close_segments(topics: Topics, topic: str, partitions: Sequence[int] = (0,)) -> None:
    """Put what was sent into closed segments: a record without a key begins another one, the second at the latest."""
    now_ms = time.time_ns() // 1_000_000
    topics.admin.alter_configs(topic, set={"segment.ms": "1"})
    for partition in partitions:
        for later_ms in (0, 10):
            columns = {
                "key": pa.array([None], pa.string()),
                "value": ["begins a segment"],
                "timestamp": pa.array([now_ms + later_ms], pa.timestamp("ms", "UTC")),
            }
            topics.producer.send_table(topic, pa.table(columns), partition=partition).result(PATIENCE_S)
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


def fill_alike(
    producer: Producer, topic: str, partitions: Sequence[int], rng: random.Random, count: int = 1500
) -> None:
    """The same records in each partition, in batches of any size: keys, tombstones, and records without a key."""
    left = count
    while left > 0:
        size = rng.randint(1, 100)
        rows = pa.table(
            {
                "key": pa.array([f"k{rng.randrange(KEYS)}" if rng.random() < 0.9 else None for _ in range(size)]),
                "value": pa.array(
                    [f"{rng.random()}" if rng.random() < 0.8 else None for _ in range(size)], pa.string()
                ),
                "timestamp": pa.array([rng.randrange(10**12) for _ in range(size)], pa.timestamp("ms", "UTC")),
            }
        )
        for sent in [producer.send_table(topic, rows, partition=partition) for partition in partitions]:
            sent.result(PATIENCE_S)
        left -= size


def expected_offsets(records: pa.Table, strategy: str = "offset", cleaned_offset: int = 0) -> list[int]:
    """What has to stay: of each key the newest, unless it is a tombstone that an earlier pass has seen."""
    newest: dict[bytes, tuple[Any, dict[str, Any]]] = {}
    for row in records.to_pylist():
        age = (row["timestamp"] if strategy == "timestamp" else 0, row["offset"])
        if row["key"] is not None and age >= newest.get(row["key"], (age,))[0]:
            newest[row["key"]] = (age, row)
    rows = [row for _, row in newest.values()]
    return sorted(row["offset"] for row in rows if row["value"] is not None or row["offset"] >= cleaned_offset)


def keyed_offsets(records: pa.Table) -> list[int]:
    """The offsets of records that have a key."""
    offsets: list[int] = records.filter(pc.is_valid(records["key"]))["offset"].to_pylist()
    return offsets


def works_of(bootstrap: str, topic: str) -> dict[int, PartitionWork]:
    """Each partition as it is now, to be compacted whatever its dirty ratio."""
    with Maintenance(bootstrap_servers=bootstrap) as maintenance:
        logs = [log for place, log in maintenance.describe_logs().items() if place.topic == topic]
    works = {}
    for log in logs:
        assert isinstance(log, LogDescription), log
        plan = plan_compaction(log, now_ms=NOW_MS, force=True)
        assert isinstance(plan, CompactionPlan), plan
        works[log.partition.partition] = PartitionWork(log=log, plan=plan, reason=plan.reason)
    return works


def settings_of(bootstrap: str, memory_bytes: int = ROOM_FOR_ALL, now_ms: int = NOW_MS) -> CompactionSettings:
    """What tasks go by."""
    client = {"bootstrap_servers": bootstrap, "default_api_timeout_ms": 3_000}
    return CompactionSettings(
        client=client,
        holder=HOLDER,
        now_ms=now_ms,
        memory_bytes=memory_bytes,
        seed=bytes(range(16)),
        chunk_bytes=5_000,
    )
