"""The job that keeps the newest record of each key in a table, compared with a reader of the whole topic."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import Row, SparkSession

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.client import Producer
from sparklog.jobs.job import JobContext, Run, run_job
from sparklog.jobs.latest import JOB, merge_range
from sparklog.jobs.options import parse_options
from sparklog.jobs.table_lag import TablePartition
from sparklog.log.description import LogDescription
from sparklog.schemas.framing import frame_of
from sparklog.spark.compaction.rewrite import PartitionRewriter
from sparklog.spark.compaction.task import compact_in_task
from sparklog.spark.history.latest import ConcurrentMerge, LatestTable, MergeRange
from support.jobs.archives import describe
from support.jobs.compactions import NOW_MS, close_segments, compact, consume, send, settings_of, works_of
from support.jobs.compactions import rows_of as compacted_rows
from support.patience import PATIENCE_S
from support.runs.seeds import seeds
from support.schemas.avro import written
from support.schemas.registry import schema_registry
from support.spark_topics import Topics

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

COMPACTED = {"cleanup_policy": "compact", "delete_retention_ms": 0, "internal_segment_bytes": 2000}
NEVER_LATE = "100000d"


@pytest.fixture
def tables(tmp_path: Path) -> str:
    return str(tmp_path / "tables")


def run(context: JobContext, tables: str, *topics: str, dry_run: bool = False, **options: Any) -> Run:
    given = {"topics": list(topics), "tables": tables, "lag_target": NEVER_LATE, **options}
    return run_job(JOB, context, parse_options(JOB, given), dry_run=dry_run)


def only_row(done: Run) -> Row:
    [row] = done.rows.collect()
    return row


def rows_of(tables: str, topic: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(f"{tables}/{topic}_latest").to_pyarrow_table().to_pylist()
    return rows


def in_table(tables: str, topic: str) -> dict[bytes, bytes]:
    rows = rows_of(tables, topic)
    found = {row["key"]: row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def options_of(topics: Topics) -> dict[str, str]:
    return {"kafka.bootstrap.servers": topics.bootstrap}


def log_of(topics: Topics, topic: str) -> LogDescription:
    return describe(topics, topic)[TopicPartition(topic, 0)]


def test_the_table_has_the_newest_record_of_each_key_and_loses_deleted_ones(
    topics: Topics, make_context: Any, tables: str
) -> None:
    topic = topics.create(2, **COMPACTED)
    send(topics, topic, [("a", "1"), ("b", "1"), (None, "no key"), ("a", "2")])
    send(topics, topic, [("a", "other partition")], partition=1)

    planned = run(make_context(), tables, topic, dry_run=True).rows.sort("partition").collect()
    assert [(row.due, row.merged_to, row.merge_to, row.whole) for row in planned] == [
        (True, None, 4, True), (True, None, 1, True)
    ]  # fmt: skip
    assert not Path(tables).exists()

    rows = run(make_context(), tables, topic).rows.sort("partition").collect()
    assert [(row.outcome, row.merged_from, row.merged_to, row.upserted_keys, row.deleted_keys) for row in rows] == [
        ("done", 0, 4, 2, 0), ("done", 0, 1, 1, 0)
    ]  # fmt: skip
    found = {(row["partition"], row["key"]): (row["value"], row["offset"]) for row in rows_of(tables, topic)}
    assert found == {(0, b"a"): (b"2", 3), (0, b"b"): (b"1", 1), (1, b"a"): (b"other partition", 0)}

    send(topics, topic, [("a", None), ("c", "1"), ("d", "1"), ("d", None)])
    row = only_row(run(make_context(), tables, topic))
    assert (row.merged_from, row.merged_to, row.upserted_keys, row.deleted_keys) == (4, 8, 1, 2)
    found = {(row["partition"], row["key"]): row["value"] for row in rows_of(tables, topic)}
    assert found == {(0, b"b"): b"1", (0, b"c"): b"1", (1, b"a"): b"other partition"}
    assert run(make_context(), tables, topic).rows.count() == 0
    reports = DeltaTable(make_context().table("latest")).to_pyarrow_table()
    assert sorted(reports["merged_to"].to_pylist()) == [1, 4, 8]  # a merge's number is not the report's


def test_of_two_runs_at_once_one_merges_and_none_fails(topics: Topics, make_context: Any, tables: str) -> None:
    topic = topics.create(**COMPACTED)
    send(topics, topic, [("a", "1"), ("b", "1")])
    run(make_context(), tables, topic)
    send(topics, topic, [("a", "2"), ("b", None), ("c", "1")])
    both, done = threading.Barrier(2, timeout=PATIENCE_S), []

    def once() -> None:
        context = make_context(say=lambda text: both.wait() if text.startswith("merging") else None)
        done.append(only_row(run(context, tables, topic)))

    threads = [threading.Thread(target=once) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert [row.outcome for row in done] == ["done", "done"]
    assert sum(row.upserted_keys for row in done) == 2
    assert in_table(tables, topic) == {b"a": b"2", b"c": b"1"}


def test_a_tombstone_that_compaction_has_removed_first_deletes_all_the_same(
    topics: Topics, context: JobContext, make_context: Any, tables: str
) -> None:
    topic = topics.create(**COMPACTED)
    send(topics, topic, [("gone", "1"), ("stays", "1")])
    run(make_context(), tables, topic)
    send(topics, topic, [("gone", None)])
    for _ in range(2):  # the second run removes the tombstone
        close_segments(topics, topic)
        compact(context, topic)
    assert log_of(topics, topic).cleaned_offset > 3

    row = only_row(run(make_context(), tables, topic))

    assert (row.outcome, row.merged_from, row.deleted_keys) == ("done", 0, 0)
    assert in_table(tables, topic) == {b"stays": b"1"}


def test_a_tombstone_that_killed_compactions_have_removed_deletes_all_the_same(
    topics: Topics, make_context: Any, tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create(**COMPACTED)
    send(topics, topic, [("gone", "1"), ("stays", "1")])
    run(make_context(), tables, topic)
    send(topics, topic, [("gone", None), ("new", "1")])
    send(topics, topic, [("large", "x" * 1500)])
    close_segments(topics, topic)
    with monkeypatch.context() as patched:
        patched.setattr(PartitionRewriter, "finish", lambda *_, **__: 1 / 0)  # all but the cleaner's checkpoint
        for later_ms in (0, 10_000):  # the second pass removes the tombstone
            settings = settings_of(topics.bootstrap, now_ms=NOW_MS + later_ms)
            ((_, outcome),) = compact_in_task(works_of(topics.bootstrap, topic).values(), settings)
            assert "ZeroDivisionError" in outcome.reason
    assert b"gone" not in dict(compacted_rows(consume(topics.bootstrap, topic)))
    assert log_of(topics, topic).cleaned_offset == 0

    row = only_row(run(make_context(), tables, topic))

    assert (row.outcome, row.merged_from) == ("done", 0)
    assert in_table(tables, topic).keys() == {b"stays", b"new", b"large"}


def test_keys_whose_records_were_deleted_from_the_log_go_also_if_nothing_is_new(
    topics: Topics, make_context: Any, tables: str
) -> None:
    topic = topics.create(2, **COMPACTED | {"cleanup_policy": "compact,delete"})
    send(topics, topic, [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")])
    send(topics, topic, [("a", "other partition")], partition=1)
    run(make_context(), tables, topic)
    topics.admin.delete_records({TopicPartition(topic, 0): 2})
    send(topics, topic, [("b", "2")])

    row = only_row(run(make_context(), tables, topic))

    assert (row.outcome, row.merged_from, row.merged_to, row.upserted_keys) == ("done", 4, 5, 1)
    found = {(row["partition"], row["key"]): row["value"] for row in rows_of(tables, topic)}
    assert found == {(0, b"b"): b"2", (0, b"c"): b"1", (0, b"d"): b"1", (1, b"a"): b"other partition"}
    topics.admin.delete_records({TopicPartition(topic, 0): 4})
    row = only_row(run(make_context(), tables, topic))
    assert (row.outcome, row.merged_from, row.merged_to, row.upserted_keys) == ("done", 5, 5, 0)
    assert {(row["partition"], row["key"]) for row in rows_of(tables, topic)} == {(0, b"b"), (1, b"a")}
    assert run(make_context(), tables, topic).rows.count() == 0


@pytest.mark.parametrize("seed", seeds(1, soak=5))
def test_whatever_is_sent_compacted_and_run_the_table_is_what_a_reader_makes_of_the_topic(
    topics: Topics, context: JobContext, make_context: Any, tables: str, seed: int
) -> None:
    chance = random.Random(seed)
    topic = topics.create(**COMPACTED)
    expected: dict[bytes, bytes] = {}
    for _ in range(4):
        for _ in range(chance.randint(1, 3)):
            rows = [(f"k{chance.randrange(8)}", chance.choice(["x", "y", None])) for _ in range(chance.randint(1, 6))]
            send(topics, topic, rows)
            for key, value in rows:
                expected.pop(key.encode(), None)
                if value is not None:
                    expected[key.encode()] = value.encode()
            if chance.random() < 0.4:
                close_segments(topics, topic)
                compact(context, topic)
        run(make_context(), tables, topic)
        assert in_table(tables, topic) == expected


DIES = textwrap.dedent(
    """
    import os, signal, sys
    from sparklog.jobs import job, latest
    from sparklog.jobs.options import parse_options
    from sparklog.spark.history import latest as tables
    from sparklog.spark.session import local_session

    bootstrap, topic, folder = sys.argv[1:]
    tables._commit_progress = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    context = job.JobContext(spark=local_session("dies"), reports=folder, client={"bootstrap_servers": bootstrap})
    job.run_job(latest.JOB, context, parse_options(latest.JOB, {"topics": [topic], "tables": folder}))
    """
)


def test_a_run_that_is_killed_after_its_merge_is_repeated_without_harm(
    topics: Topics, make_context: Any, tables: str
) -> None:
    topic = topics.create(**COMPACTED)
    send(topics, topic, [("a", "1"), ("b", "1"), ("c", "1"), ("c", None)])
    arguments = [topics.bootstrap, topic, tables]
    killed = subprocess.run([sys.executable, "-c", DIES, *arguments], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert in_table(tables, topic) == {b"a": b"1", b"b": b"1"}
    send(topics, topic, [("a", "2"), ("b", None)])

    row = only_row(run(make_context(), tables, topic))

    assert (row.outcome, row.merged_from, row.merged_to) == ("done", 0, 6)
    assert in_table(tables, topic) == {b"a": b"2"}


@pytest.mark.parametrize("deleted_before", [False, True])
def test_a_run_that_is_behind_another_one_brings_no_deleted_key_back(
    spark: SparkSession, topics: Topics, make_context: Any, tables: str, deleted_before: bool
) -> None:
    """deleted_before: the other run has nothing to change, because the key appeared and went since the run before."""
    topic = topics.create(**COMPACTED)
    send(topics, topic, [("a", "1"), ("b", "1")])
    run(make_context(), tables, topic)
    send(topics, topic, [("new", "1")] if deleted_before else [("new", "1"), ("a", "2")])
    behind = LatestTable.open(f"{tables}/{topic}_latest")
    log = log_of(topics, topic)
    send(topics, topic, [("new", None)])
    run(make_context(), tables, topic)
    before = in_table(tables, topic)

    part = MergeRange(log=log, offset_from=2, offset_to=log.last_stable_offset, is_whole=False)
    with pytest.raises(ConcurrentMerge):
        behind.merge(spark, [part], options_of(topics))

    assert in_table(tables, topic) == before
    merged = LatestTable.open(f"{tables}/{topic}_latest").merged(log_of(topics, topic))
    assert merged == (0, log_of(topics, topic).last_stable_offset)


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Customer", "fields": [{"name": name, **of} for name, of in fields.items()]}


def test_values_are_typed_by_a_registry_and_follow_its_newest_schema(
    topics: Topics, make_context: Any, tables: str
) -> None:
    first = record(name={"type": "string"})
    second = record(name={"type": "string"}, age={"type": ["null", "int"], "default": None})
    topic = topics.create(**COMPACTED)

    def send_framed(schema: dict[str, Any], values: dict[str, Any]) -> None:
        number = registry.register(f"{topic}-value", schema)
        bodies = [
            None if value is None else frame_of(number) + written(schema, [value])[0] for value in values.values()
        ]
        rows = pa.table({"key": [*values], "value": pa.array(bodies, pa.binary())})
        topics.producer.send_table(topic, rows, partition=0).result(PATIENCE_S)

    with schema_registry() as registry:
        given = ["keyFormat=string", "valueFormat=avro", f"schema.registry.url={registry.url}"]
        send_framed(first, {"a": {"name": "Ada"}, "b": {"name": "Bob"}})
        assert only_row(run(make_context(), tables, topic, read_option=given)).outcome == "done"
        send_framed(second, {"c": {"name": "Cleo", "age": 30}, "b": None})
        assert only_row(run(make_context(), tables, topic, read_option=given)).outcome == "done"

    assert {row["key"]: row["value"] for row in rows_of(tables, topic)} == {
        "a": {"name": "Ada", "age": None},
        "c": {"name": "Cleo", "age": 30},
    }


def test_a_malformed_value_fails_its_topic_only(topics: Topics, make_context: Any, tables: str) -> None:
    bad, good = topics.create(**COMPACTED), topics.create(**COMPACTED)
    send(topics, bad, [("a", "no json")])
    send(topics, good, [("a", json.dumps({"n": 1}))])
    given = ["valueFormat=json", "valueSchema=n int"]

    done = run(make_context(), tables, bad, good, read_option=given)

    assert (done.status, done.findings) == (1, 1)
    rows = {row.topic: row for row in done.rows.collect()}
    assert (rows[bad].outcome, rows[good].outcome) == ("failed", "done")
    assert rows[bad].reason
    assert [row["value"] for row in rows_of(tables, good)] == [{"n": 1}]


def test_records_of_aborted_transactions_are_not_merged_and_a_late_run_says_so(
    topics: Topics, make_context: Any, tables: str
) -> None:
    topic = topics.create(**COMPACTED)
    own = {"transactional_id": f"{topic}-producer", "bootstrap_servers": topics.bootstrap}
    with Producer(**own) as producer:
        producer.begin()
        producer.send(topic, b"aborted", key=b"a", partition=0)
        producer.abort()
        producer.begin()
        producer.send(topic, b"committed", key=b"b", partition=0)
        producer.commit()

    assert run(make_context(), tables, topic).status == 0
    assert in_table(tables, topic) == {b"b": b"committed"}

    send(topics, topic, [("c", "1")])
    late = run(make_context(), tables, topic, lag_target="1ms")
    assert (late.status, only_row(late).outcome) == (1, "late")
    assert in_table(tables, topic) == {b"b": b"committed", b"c": b"1"}


def test_a_topic_that_was_made_again_fails_until_its_table_is_removed(
    topics: Topics, make_context: Any, tables: str
) -> None:
    topic = topics.create(**COMPACTED)
    send(topics, topic, [("a", "1")])
    run(make_context(), tables, topic)
    topics.admin.delete_topics([topic])
    topics.admin.create_topic(topic, partitions=1, configs={"cleanup.policy": "compact"})
    topics.reconnect()
    send(topics, topic, [("b", "1")])

    refused = run(make_context(), tables, topic)

    assert (refused.status, only_row(refused).outcome) == (1, "failed")
    assert "of an earlier topic of that name; remove the table" in only_row(refused).reason
    assert in_table(tables, topic) == {b"a": b"1"}


def test_a_table_of_another_kind_is_left_alone(topics: Topics, make_context: Any, tables: str) -> None:
    topic = topics.create(**COMPACTED)
    send(topics, topic, [("a", "1")])
    write_deltalake(f"{tables}/{topic}_latest", pa.table({"key": ["x"], "what": ["else"]}))

    refused = run(make_context(), tables, topic)

    assert "is a table of another kind: it has no column" in only_row(refused).reason
    assert DeltaTable(f"{tables}/{topic}_latest").version() == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("valueFormat", "it must be NAME=VALUE"),
        ("startingOffsets=earliest", "only options of typed keys and values"),
        ("mode=permissive", "look like a tombstone"),
    ],
)
def test_options_that_a_table_cannot_have_are_refused(
    topics: Topics, make_context: Any, tables: str, given: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(make_context(), tables, "t", read_option=[given])


@pytest.mark.parametrize(
    ("reached", "cleaned", "log_start", "expected"),
    [
        (None, 0, 0, (0, True)),
        (50, 0, 0, (50, False)),
        (50, 50, 10, (50, False)),
        (50, 51, 10, (10, True)),
        (50, 0, 60, (60, True)),
    ],
)
def test_a_partition_is_read_as_a_whole_if_records_may_have_gone_that_the_table_lacks(
    reached: int | None, cleaned: int, log_start: int, expected: tuple[int, bool]
) -> None:
    log = LogDescription(
        partition=TopicPartition("t", 0), cleaned_offset=cleaned, log_start_offset=log_start, last_stable_offset=100,
        high_watermark=100,
    )  # fmt: skip
    part = merge_range(TablePartition(log=log, reached=reached))
    assert (part.offset_from, part.is_whole) == expected
    assert part.offset_to == 100
