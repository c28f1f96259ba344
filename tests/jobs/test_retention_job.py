"""The retention job on a real broker: archived and deleted segments, and the state after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from confluent_kafka import Consumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition as KafkaPartition
from deltalake import DeltaTable
from msgspec import structs
from pyspark.sql import DataFrame, Row, SparkSession

from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.jobs import retention
from sparklog.jobs.job import JobContext, Run, run_job
from sparklog.jobs.options import parse_options
from sparklog.jobs.retention import JOB, archive_to, plan_partition
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.epochs import EpochStart
from sparklog.log.retention import DeletableSegments, removable
from sparklog.spark.history.archive_files import TableLocation
from sparklog.spark.history.archive_table import COLUMNS, ArchiveTable
from sparklog.spark.history.progress import Progress, TableRange
from support.jobs.archives import archived_rows, describe, fill_days
from support.patience import OPEN_MS, PATIENCE_S
from support.spark_topics import Topics


def run(context: JobContext, *topics: str, dry_run: bool = False, **options: Any) -> Run:
    return run_job(JOB, context, parse_options(JOB, {"topics": list(topics), **options}), dry_run=dry_run)


def outcomes(done: Run) -> dict[int, str]:
    return {row.partition: row.outcome for row in done.rows.collect()}


def log_starts(topics: Topics, topic: str) -> list[int]:
    return [log.log_start_offset for _, log in sorted(describe(topics, topic).items())]


def as_read(spark: SparkSession, topics: Topics, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, "includeHeaders": "true", **options}
    return spark.read.format("sparklog").options(**given).load()


def test_a_topic_moves_to_its_archive_and_reads_the_same(
    spark: SparkSession, topics: Topics, make_context: Any, tmp_path: Path
) -> None:
    uri = str(tmp_path / "archive")
    topic = topics.create(2, retention_archive=uri, internal_segment_bytes=1500, retention_bytes=1500)
    fill_days(topics, topic, 120)
    fill_days(topics, topic, 60, partition=1)
    before = as_read(spark, topics, topic).localCheckpoint()
    logs = describe(topics, topic)
    closed = [log.closed_segments[-1].next_offset for _, log in sorted(logs.items())]

    planned = run(make_context(), topic, dry_run=True).rows.collect()
    assert [(row.due, row.archive_to, row.archived_to) for row in planned] == [(True, end, None) for end in closed]
    assert log_starts(topics, topic) == [0, 0]
    assert not Path(uri).exists()

    done = run(make_context(), topic)
    assert (done.status, outcomes(done)) == (0, {0: "done", 1: "done"})
    starts = log_starts(topics, topic)
    assert starts == [row.delete_before for row in planned]
    assert 0 < starts[0] <= closed[0]
    assert [row.archived_records for row in done.rows.sort("partition").collect()] == closed

    after = as_read(spark, topics, topic, readMode="history")
    assert_df_equality(after, before, ignore_row_order=True)
    archived = spark.read.format("delta").load(uri)
    until = before.where(f"offset < if(partition = 0, {closed[0]}, {closed[1]})")
    assert_df_equality(archived, until.selectExpr(*COLUMNS, "to_date(timestamp) AS date"), ignore_row_order=True)

    assert not any(row.due for row in run(make_context(), topic, dry_run=True).rows.collect())

    consumer = Consumer({"bootstrap.servers": topics.broker.kafka, "group.id": "none"})
    assert consumer.get_watermark_offsets(KafkaPartition(topic, 0), timeout=10) == (starts[0], 120)
    consumer.close()


def test_without_an_archive_the_job_deletes_what_the_broker_would(topics: Topics, make_context: Any) -> None:
    topic = topics.create(internal_segment_bytes=1500, retention_bytes=1500, cleanup_policy="compact,delete")
    fill_days(topics, topic, 120)
    log = describe(topics, topic)[TopicPartition(topic, 0)]
    count = removable(
        log.segments, log_start_offset=0, high_watermark=log.high_watermark, config=log.config, now_ms=0
    ).total
    assert count > 0
    done = run(make_context(), topic)
    assert outcomes(done) == {0: "done"}
    assert log_starts(topics, topic) == [log.segments[count - 1].next_offset]
    assert not any(row.due for row in run(make_context(), topic, dry_run=True).rows.collect())


def test_an_archive_that_cannot_be_written_fails_its_topics_only(
    topics: Topics, make_context: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    config = {"internal_segment_bytes": 1500, "retention_bytes": 1500}
    bad = topics.create(retention_archive=str(tmp_path / "file" / "archive"), **config)
    good = topics.create(retention_archive=str(tmp_path / "archive"), **config)
    for topic in (bad, good):
        fill_days(topics, topic, 120)
    done = run(make_context(), bad, good)
    rows = {row.topic: row for row in done.rows.collect()}
    assert (done.status, done.findings) == (1, 1)
    assert (rows[bad].outcome, rows[good].outcome) == ("failed", "done")
    assert str(tmp_path / "file") in rows[bad].reason
    assert log_starts(topics, bad) == [0]  # what is not archived stays


DIES = textwrap.dedent(
    """
    import os, signal, sys
    from sparklog.jobs import retention
    from sparklog.jobs.job import JobContext, run_job
    from sparklog.jobs.options import parse_options
    from sparklog.spark.history import archive_table
    from sparklog.spark.session import local_session

    bootstrap, topic, reports, where = sys.argv[1:]
    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)
    if where == "before its commit":
        archive_table.ArchiveTable.commit = die
    else:
        retention._delete = die
    context = JobContext(spark=local_session("dies"), reports=reports, client={"bootstrap_servers": bootstrap})
    run_job(retention.JOB, context, parse_options(retention.JOB, {"topics": [topic]}))
    """
)


@pytest.mark.slow
@pytest.mark.soak_only
@pytest.mark.parametrize("where", ["before its commit", "between archive and delete"])
def test_a_job_that_is_killed_has_deleted_nothing_and_the_next_run_does_all_of_it_once(
    topics: Topics, make_context: Any, tmp_path: Path, where: str
) -> None:
    uri = str(tmp_path / "archive")
    topic = topics.create(retention_archive=uri, internal_segment_bytes=1500, retention_bytes=1500)
    fill_days(topics, topic, 120)
    arguments = [topics.bootstrap, topic, str(tmp_path / "reports"), where]
    killed = subprocess.run([sys.executable, "-c", DIES, *arguments], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert log_starts(topics, topic) == [0]
    versions = DeltaTable(uri).version()
    assert versions == (0 if where == "before its commit" else 1)

    done = run(make_context(), topic)
    assert outcomes(done) == {0: "done"}
    assert DeltaTable(uri).version() == 1
    end = describe(topics, topic)[TopicPartition(topic, 0)].closed_segments[-1].next_offset
    assert [row["offset"] for row in archived_rows(uri)] == list(range(end))
    assert log_starts(topics, topic)[0] > 0


def test_only_committed_records_are_archived_and_an_open_transaction_holds_both_up(
    spark: SparkSession, topics: Topics, make_context: Any, tmp_path: Path
) -> None:
    uri = str(tmp_path / "archive")
    topic = topics.create(retention_archive=uri, internal_segment_bytes=1000, retention_bytes=1)

    def transactional(name: str) -> KafkaProducer:
        own = {"transactional.id": f"{topic}-{name}", "transaction.timeout.ms": OPEN_MS}
        producer = KafkaProducer({"bootstrap.servers": topics.broker.kafka, **own})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        return producer

    def send(producer: KafkaProducer, value: str, count: int = 30) -> None:
        for number in range(count):
            producer.produce(topic, f"{value}-{number}", partition=0)
            producer.flush(PATIENCE_S)

    committing, aborting, slow = (transactional(name) for name in ("a", "b", "c"))
    send(committing, "committed")
    send(aborting, "aborted")
    committing.commit_transaction(PATIENCE_S)
    aborting.abort_transaction(PATIENCE_S)
    (before,) = describe(topics, topic).values()
    send(slow, "slow")
    committing.begin_transaction()
    send(committing, "later")
    committing.commit_transaction(PATIENCE_S)

    assert run(make_context(), topic).status == 0
    rows = archived_rows(uri)
    assert len(rows) == 30
    assert {row["value"].split(b"-")[0] for row in rows} == {b"committed"}
    assert log_starts(topics, topic)[0] <= before.log_end_offset

    slow.commit_transaction(PATIENCE_S)
    assert run(make_context(), topic).status == 0
    assert {row["value"].split(b"-")[0] for row in archived_rows(uri)} == {b"committed", b"slow", b"later"}
    assert as_read(spark, topics, topic, readMode="history").select("value").distinct().count() == 90
    for producer in (committing, aborting, slow):
        producer.close()


def described(
    *ages_ms: int, high_watermark: int = 1000, last_stable_offset: int = 1000, **config: Any
) -> LogDescription:
    """A log with segments of ten offsets and a hundred bytes, whose newest records are so old at 1,000,000 ms."""
    segments = tuple(
        SegmentDescription(
            base_offset=10 * i, next_offset=10 * i + 10, size_bytes=100, largest_timestamp_ms=1_000_000 - age,
            first_timestamp_ms=0,
        )
        for i, age in enumerate(ages_ms)
    )  # fmt: skip
    high_watermark = min(high_watermark, 10 * len(ages_ms))
    return LogDescription(
        partition=TopicPartition("t", 0),
        segments=segments,
        high_watermark=high_watermark,
        last_stable_offset=min(high_watermark, last_stable_offset),
        config=TopicConfig(**config),
    )


@pytest.mark.parametrize(
    ("log", "end", "before"),
    [
        (described(50, 40, 30, retention_ms=-1), 20, 0),
        (described(50, 40, 30, retention_ms=-1, high_watermark=15), 10, 0),
        (described(50, 40, 30, retention_ms=-1, last_stable_offset=15), 10, 0),
        (described(50, 40, 30, retention_ms=5, last_stable_offset=25), 20, 30),  # deletes what is archived only
        (described(50, 40, 30, retention_ms=45), 20, 10),
        (described(50, 40, 30, retention_ms=5), 30, 30),  # the active segment goes too
        (described(50, 40, 30, retention_ms=5, high_watermark=25), 20, 20),
        (described(50, 40, 30, retention_ms=5, cleanup_policy=("compact",)), 20, 0),
        (described(retention_ms=5), 0, 0),
    ],
)
def test_what_is_archived_and_deleted_is_committed_and_closed_or_given_up(
    log: LogDescription, end: int, before: int, tmp_path: Path
) -> None:
    log = structs.replace(log, config=replace(log.config, retention_archive=str(tmp_path / "none")))
    planned = plan_partition(log, {}, now_ms=1_000_000)
    assert (planned.archive_to, planned.delete_before) == (end, before)


def test_the_plan_says_why() -> None:
    log = described(50, 40, 30, retention_ms=45)
    assert plan_partition(log, {}, now_ms=1_000_000).given_up == DeletableSegments(0, 0, 1)
    assert archive_to(log, DeletableSegments(0, 0, 0)) == 20


def test_a_log_that_has_lost_what_is_archived_is_left_alone(tmp_path: Path) -> None:
    """Otherwise the replacements of lost records would count as archived."""
    place = TableLocation(str(tmp_path / "archive"))
    ArchiveTable.create(place).commit([], {TopicPartition("t", 0): Progress("id", TableRange(0, 25), 3)})
    log = described(50, 40, 30, retention_ms=5, retention_archive=place.uri)
    log = structs.replace(log, topic_id="id", log_end_offset=30)
    assert plan_partition(log, {}, now_ms=1_000_000).archived_to == 25

    shorter = plan_partition(structs.replace(log, log_end_offset=20), {}, now_ms=1_000_000)
    longer = plan_partition(structs.replace(log, epochs=(EpochStart(3, 0), EpochStart(7, 20))), {}, now_ms=1_000_000)

    assert "the log has lost records" in shorter.error
    assert "offset 24 is of leader epoch 7 in the log, and of 3 in the table" in longer.error


class RecordingAdmin:
    """An admin client that notes what it is to delete."""

    def __init__(self) -> None:
        self.asked: dict[TopicPartition, int] = {}

    def delete_records(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.asked |= offsets
        return offsets


@pytest.mark.parametrize(("retention_ms", "before"), [(5, 20), (45, 10), (60, None)])
def test_what_is_deleted_was_planned_and_is_due_still(retention_ms: int, before: int | None) -> None:
    planned = Row(topic="t", partition=0, reason="", archive=None, delete_before=20, error=None)
    admin: Any = RecordingAdmin()

    outcome = retention._delete(admin, planned, described(50, 40, 30, retention_ms=retention_ms), None, 1_000_000)[2]

    assert outcome == "done"
    assert admin.asked == ({} if before is None else {TopicPartition("t", 0): before})


def test_a_topic_that_was_made_again_is_not_what_was_planned() -> None:
    planned = Row(topic="t", partition=0, archive=None, error=None)
    log = structs.replace(described(50, 40), topic_id="old")

    assert retention._log_to_trim(planned, log, log) is log
    assert retention._log_to_trim(planned, log, structs.replace(log, topic_id="new")) == (
        "the topic was made again after the plan was made"
    )
