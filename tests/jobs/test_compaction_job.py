"""The compaction job on topics of a running broker: the records that stay, the report, and harmless inputs."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from delta.tables import DeltaTable

from sparklog.base.errors import ConfigError, LeaderNotAvailable
from sparklog.base.ids import TopicPartition
from sparklog.client import Maintenance, Producer
from sparklog.jobs.compaction import JOB
from sparklog.jobs.job import run_job
from sparklog.jobs.logs import describe_logs
from sparklog.jobs.options import parse_options
from sparklog.records.batch import read_header
from sparklog.spark.compaction.task import compact_in_task
from sparklog.testing import SimClock
from support.docs.markdown import ROOT, blocks
from support.jobs.compactions import (
    COMPACTED,
    close_segments,
    compact,
    consume,
    keyed_offsets,
    newest,
    rows_of,
    send,
    settings_of,
    works_of,
)
from support.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_newest_value_of_each_key_stays_and_keeps_its_offset(topics, context):
    topic = topics.create(**COMPACTED | {"cleanup_policy": "compact,delete"})
    send(topics, topic, [("a", "1"), ("b", "1"), (None, "no key"), ("a", "2")])
    send(topics, topic, [("c", "1"), ("b", "2"), ("a", "3")])
    close_segments(topics, topic)
    (row,) = compact(context, topic)
    assert (row.outcome, row.how, row.keys, row.cleaned_offset) == ("compacted", "task", 3, 8)
    assert (row.records_before, row.records_after, row.segments_after) == (8, 3, 1)
    records = consume(topics.bootstrap, topic).slice(0, 3)
    assert records["offset"].to_pylist() == [4, 5, 6]
    assert rows_of(records) == [(b"c", b"1"), (b"b", b"2"), (b"a", b"3")]


def test_the_documented_queries_read_the_reports(topics, context, spark):
    topic = topics.create(**COMPACTED)
    send(topics, topic, [("a", "1"), ("a", "2")])
    close_segments(topics, topic)
    compact(context, topic)
    for page in ("jobs.md", "compaction.md"):
        for block in blocks(ROOT / "docs" / "operating" / page):
            if block.language == "sql":
                text = block.text.replace("/var/lib/sparklog/reports", context.reports)
                found = [
                    spark.sql(query).collect()
                    for query in re.split(r";?\n\n|;\n$", text.strip() + "\n")
                    if query.strip()
                ]
    assert {row.topic: row.mb for row in found[-1]}[topic] > 0


def test_departures_of_each_plane_come_down_to_those_that_the_csv_gives(topics, context, departures):
    topic = topics.create(cleanup_policy="compact", delete_retention_ms=0, segment_bytes=8 << 20)
    table = departures.load()
    for start in range(0, table.num_rows, 20_000):
        topics.producer.send_table(topic, table.slice(start, 20_000), partition=0).result(30)
    close_segments(topics, topic)
    early = newest(consume(topics.bootstrap, topic))

    (first,) = compact(context, topic)
    half_way = newest(consume(topics.bootstrap, topic))
    (second,) = compact(context, topic)  # delete.retention.ms = 0: what the first has seen may go
    late = consume(topics.bootstrap, topic)

    flights = departures.read_csv()
    last = {plane: row for row, plane in enumerate(flights["tailnum"].to_pylist()) if plane is not None}
    values = departures.values(flights.take(list(last.values()))).to_pylist()
    expected = {plane.encode(): value for plane, value in zip(last, values, strict=True) if value is not None}
    assert early == half_way == newest(late) == expected
    assert sorted(rows_of(late)) == sorted(expected.items())
    assert (first.keys, second.records_after) == (len(last), len(expected))
    assert first.bytes_after < first.bytes_before / 20


def test_a_tombstone_stays_until_its_delete_horizon_and_makes_the_partition_due_then(topics, make_context):
    clock = SimClock()
    context = make_context(clock=clock)
    topic = topics.create(**COMPACTED | {"delete_retention_ms": 3_600_000, "min_cleanable_dirty_ratio": 1})
    send(topics, topic, [("a", "1"), ("b", "1"), ("a", None)])
    close_segments(topics, topic)
    (row,) = compact(context, topic)
    assert row.next_delete_horizon_ms == context.now_ms + 3_600_000
    assert rows_of(consume(topics.bootstrap, topic)) == [(b"b", b"1"), (b"a", None)]
    assert compact(context, topic, force=False) == []

    clock.advance(3_600_001)
    (row,) = compact(context, topic, force=False)
    assert (row.outcome, row.next_delete_horizon_ms) == ("compacted", None)
    assert rows_of(consume(topics.bootstrap, topic)) == [(b"b", b"1")]
    assert compact(context, topic, force=False) == []


def test_a_run_that_is_killed_before_its_report_leaves_no_tombstone_for_ever(topics, make_context, monkeypatch):
    clock = SimClock()
    context = make_context(clock=clock)
    topic = topics.create(**COMPACTED | {"delete_retention_ms": 3_600_000, "min_cleanable_dirty_ratio": 1})
    send(topics, topic, [("a", "1"), ("b", "1"), ("a", None)])
    close_segments(topics, topic)
    with monkeypatch.context() as patched:
        patched.setattr("sparklog.jobs.job.append", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit):
            compact(context, topic)
    horizon_ms = context.now_ms + 3_600_000
    clock.advance(1_000)

    (row,) = compact(context, topic, force=False)
    assert (row.outcome, row.next_delete_horizon_ms) == ("unchanged", horizon_ms)
    assert compact(context, topic, force=False) == []
    clock.advance(3_600_001)
    compact(context, topic, force=False)
    assert rows_of(consume(topics.bootstrap, topic)) == [(b"b", b"1")]


def test_what_would_not_change_is_left_alone_and_not_read_again(topics, context):
    topic = topics.create(**COMPACTED)
    send(topics, topic, [("a", "1"), ("b", "1")])
    close_segments(topics, topic)
    compact(context, topic)
    before = {path.name: path.stat().st_ino for path in Path(topics.folder(topic)).glob("*.log")}
    (row,) = compact(context, topic)
    assert (row.outcome, row.written_mb) == ("unchanged", 0)
    assert {path.name: path.stat().st_ino for path in Path(topics.folder(topic)).glob("*.log")} == before
    assert compact(context, topic, force=False) == []


def test_the_last_batch_of_a_producer_stays_for_as_long_as_the_broker_knows_it(topics, context):
    """However old its timestamps are: the broker recognizes its repeated batches, also after a restart."""
    topic = topics.create(**COMPACTED)
    with Producer(bootstrap_servers=topics.bootstrap, enable_idempotence=True) as producer:
        producer.send(topic, b"superseded", b"a", partition=0, timestamp_ms=1_000).result(PATIENCE_S)
        send(topics, topic, [("a", "newest")])
        close_segments(topics, topic)

        compact(context, topic)

        first = min(Path(topics.folder(topic, 0)).glob("*.log"))
        batches = read_header(first.read_bytes())
        assert (batches.producer_id >= 0, batches.record_count) == (True, 0)
        assert rows_of(consume(topics.bootstrap, topic)) == [(b"a", b"newest")]
    topics.admin.delete_topics([topic])


def test_a_version_in_the_timestamp_or_a_header_decides_what_is_newest(topics, context):
    configs = {
        "offset": {},
        "timestamp": {"compaction_strategy": "timestamp"},
        "header": {"compaction_strategy": "header"},
    }
    names = {strategy: topics.create(**COMPACTED, **config) for strategy, config in configs.items()}
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    versions = [3, 9, 5, None]
    for topic in names.values():
        table = pa.table(
            {
                "key": ["a"] * 4,
                "value": ["first", "by header", "by timestamp", "by offset"],
                "timestamp": pa.array([1_000, 2_000, 3_000, 2_500], pa.timestamp("ms", "UTC")),
                "headers": pa.array(
                    [[{"key": "version", "value": struct.pack(">q", each)}] if each else [] for each in versions], kind
                ),
            }
        )
        topics.producer.send_table(topic, table, partition=0).result(30)
        close_segments(topics, topic)
    compact(context, *names.values())
    found = {strategy: rows_of(consume(topics.bootstrap, topic)) for strategy, topic in names.items()}
    assert found == {strategy: [(b"a", f"by {strategy}".encode())] for strategy in names}


def test_a_damaged_partition_is_quarantined_and_the_others_are_compacted(topics, context):
    topic = topics.create(partitions=3, **COMPACTED)
    for partition in range(3):
        send(topics, topic, [("a", "1"), ("a", "2" * 200)], partition)
    close_segments(topics, topic, range(3))
    damaged = min(Path(topics.folder(topic, 1)).glob("*.log"))
    with damaged.open("r+b") as file:
        file.seek(150)
        file.write(b"x")
    size = damaged.stat().st_size
    rows = compact(context, topic, status=1)
    assert [row.outcome for row in rows] == ["compacted", "quarantined", "compacted"]
    assert "CRC" in rows[1].reason
    assert damaged.stat().st_size == size
    assert len(rows_of(consume(topics.bootstrap, topic, 2))) == 1
    topics.admin.delete_topics([topic])


@pytest.mark.slow
def test_more_keys_than_the_memory_of_a_task_holds_go_by_shuffle(topics, context):
    topic = topics.create(cleanup_policy="compact", segment_bytes=1 << 20)
    half = 50_000  # a MiB has room for 22 thousand keys
    for _ in range(2):
        for start in range(0, half, 10_000):
            keys = [f"key-{number}" for number in range(start, start + 10_000)]
            rows = pa.table({"key": keys, "value": keys})
            topics.producer.send_table(topic, rows, partition=0).result(30)
    close_segments(topics, topic)
    small = topics.create(**COMPACTED)
    send(topics, small, [("a", "1"), ("a", "2")])
    close_segments(topics, small)
    rows = {row.topic: row for row in compact(context, topic, small, memory_per_task=1)}
    assert (rows[topic].outcome, rows[topic].how, rows[topic].keys) == ("compacted", "shuffle", half)
    assert (rows[small].outcome, rows[small].how) == ("compacted", "task")
    kept = consume(topics.bootstrap, topic)
    assert keyed_offsets(kept) == list(range(half, 2 * half))


def test_a_plan_says_of_each_partition_whether_it_is_due_and_why(topics, context):
    topic = topics.create(partitions=2, **COMPACTED)
    young = topics.create(**COMPACTED, min_compaction_lag_ms=3_600_000)
    for name in (topic, young):
        send(topics, name, [("a", "1"), ("a", "2")])
        close_segments(topics, name)
    options = parse_options(JOB, {"topics": [topic[:-1] + f"[{topic[-1]}]", young]})
    rows = run_job(JOB, context, options, dry_run=True).rows.collect()
    due, empty, waiting = sorted(rows, key=lambda row: (row.topic != topic, row.partition))
    assert (due.due, due.groups, due.end_offset) == (True, 1, 3)
    assert "dirty" in due.reason
    assert not empty.due
    assert not waiting.due
    assert "min.compaction.lag.ms" in waiting.reason
    assert not DeltaTable.isDeltaTable(context.spark, context.table("compaction"))


def test_a_partition_without_a_leader_is_a_finding_unless_its_topic_is_known_not_to_be_compacted(
    topics, context, monkeypatch
):
    kept, compacted = topics.create(partitions=2, cleanup_policy="delete"), topics.create(partitions=2, **COMPACTED)
    lost = [TopicPartition(topic, 1) for topic in (kept, compacted)]

    def describe_without_leaders(*arguments):
        found = dict(describe_logs(*arguments))
        return found | {name: LeaderNotAvailable("no leader") for name in lost if name in found}

    monkeypatch.setattr("sparklog.jobs.compaction.describe_logs", describe_without_leaders)
    run = run_job(JOB, context, parse_options(JOB, {"topics": [kept, compacted]}))
    assert [(row.topic, row.partition, row.outcome) for row in run.rows.collect()] == [(compacted, 1, "failed")]


def test_a_segment_that_another_run_is_writing_is_left_to_it(topics, monkeypatch):
    topic = topics.create(**COMPACTED)
    send(topics, topic, [("a", "1"), ("a", "2")])
    close_segments(topics, topic)
    begin = Maintenance.begin_replace

    def begin_beside_another_run(*arguments):
        lease = begin(*arguments)
        Path(lease.path).touch()
        return lease

    monkeypatch.setattr(Maintenance, "begin_replace", begin_beside_another_run)
    ((_, outcome),) = compact_in_task(works_of(topics.bootstrap, topic).values(), settings_of(topics.bootstrap))
    assert outcome.outcome == "stale"


def test_a_pattern_that_is_none_is_refused(context):
    with pytest.raises(ConfigError, match="--topics"):
        run_job(JOB, context, parse_options(JOB, {"topics": ["("]}), dry_run=True)


@pytest.fixture
def departures(monkeypatch):
    """The module of the examples that has the data."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return pytest.importorskip("departures")
