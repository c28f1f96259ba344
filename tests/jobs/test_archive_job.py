"""The archive job on a real broker: a table that follows its topic, and the findings if it does not keep up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from confluent_kafka import Producer as KafkaProducer
from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession

from sparklog.base.clock import SystemClock
from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Producer
from sparklog.jobs import retention
from sparklog.jobs.archive import JOB
from sparklog.jobs.job import JobContext, Run, run_job
from sparklog.jobs.options import parse_options
from sparklog.spark.history import merging
from support.jobs.archives import DAY_MS, FIRST_DAY_MS, archived_rows, describe, fill_days
from support.jobs.compactions import close_segments, compact, send
from support.patience import OPEN_MS, PATIENCE_S
from support.processes.broker import BrokerProcess
from support.spark_topics import Topics

LOG_APPEND = {"message_timestamp_type": "LogAppendTime"}
NEVER_LATE = "100000d"
HOUR_MS = 3_600_000


class ClockAhead(SystemClock):
    """A clock that is ahead of the broker's."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def time_ms(self) -> int:
        return super().time_ms() + self._ahead_ms


def run(context: JobContext, *topics: str, dry_run: bool = False, **options: Any) -> Run:
    return run_job(JOB, context, parse_options(JOB, {"topics": list(topics), **options}), dry_run=dry_run)


def only_row(done: Run) -> Row:
    [row] = done.rows.collect()
    return row


def offsets(uri: str | Path, partition: int = 0) -> list[int]:
    return [row["offset"] for row in archived_rows(uri) if row["partition"] == partition]


def as_read(spark: SparkSession, topics: Topics, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, "includeHeaders": "true", **options}
    return spark.read.format("sparklog").options(**given).load()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


def test_each_run_takes_the_table_to_the_end_of_the_log(
    spark: SparkSession, topics: Topics, make_context: Any, uri: str
) -> None:
    topic = topics.create(2, retention_archive=uri, internal_segment_bytes=1500, **LOG_APPEND)
    fill_days(topics, topic, 120)
    fill_days(topics, topic, 10, partition=1)  # less than a segment

    planned = run(make_context(), topic, dry_run=True).rows.sort("partition").collect()
    assert [(row.due, row.archived_to, row.archive_to, row.offsets) for row in planned] == [
        (True, None, 120, 120), (True, None, 10, 10)
    ]  # fmt: skip
    assert all(0 <= row.lag_ms < HOUR_MS for row in planned)
    assert not Path(uri).exists()

    done = run(make_context(), topic)
    assert (done.status, done.findings) == (0, 0)
    rows = done.rows.sort("partition").collect()
    assert [(row.outcome, row.archived_from, row.archived_to, row.archived_records) for row in rows] == [
        ("done", 0, 120, 120), ("done", 0, 10, 10)
    ]  # fmt: skip
    assert [(row.offsets_left, row.lag_ms) for row in rows] == [(0, 0), (0, 0)]
    assert [row.lag_before_ms is not None for row in rows] == [True, True]
    assert (offsets(uri), offsets(uri, 1)) == (list(range(120)), list(range(10)))
    assert run(make_context(), topic).rows.count() == 0  # nothing was to be done

    fill_days(topics, topic, 20, partition=1, first=10)
    row = only_row(run(make_context(), topic, lag_target=NEVER_LATE))
    assert (row.partition, row.archived_to, row.archived_records) == (1, 30, 20)
    assert_df_equality(
        as_read(spark, topics, topic, readMode="history"), as_read(spark, topics, topic), ignore_row_order=True
    )


def test_retention_deletes_what_this_job_has_archived_and_archives_it_no_second_time(
    spark: SparkSession, topics: Topics, make_context: Any, uri: str
) -> None:
    topic = topics.create(retention_archive=uri, internal_segment_bytes=1500, retention_bytes=1500)
    fill_days(topics, topic, 120)
    before = as_read(spark, topics, topic).localCheckpoint()
    run(make_context(), topic)

    done = run_job(retention.JOB, make_context(), parse_options(retention.JOB, {"topics": [topic]}))
    row = only_row(done)
    assert (row.outcome, row.archived_records, row.archived_to) == ("done", 0, 120)
    assert 0 < row.log_start_offset < 120
    assert offsets(uri) == list(range(120))
    assert_df_equality(as_read(spark, topics, topic, readMode="history"), before, ignore_row_order=True)
    typed = as_read(spark, topics, topic, readMode="history", valueFormat="string")
    assert_df_equality(typed, before.withColumn("value", before.value.cast("string")), ignore_row_order=True)


def test_the_small_files_of_many_runs_are_merged(
    spark: SparkSession, topics: Topics, make_context: Any, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "FEWEST", 3)
    topic = topics.create(2, retention_archive=uri)
    merged, noon = [], pa.array([FIRST_DAY_MS + DAY_MS // 2] * 5, pa.timestamp("ms", "UTC"))
    for number in range(6):
        topics.fill(topic, 5, partition=0, timestamp=noon)
        if number % 2:
            topics.fill(topic, 5, partition=1, timestamp=noon)
        rows = run(make_context(), topic, lag_target=NEVER_LATE).rows.sort("partition").collect()
        merged.append([row.merged_files for row in rows])
    assert merged == [[0], [0, 0], [3], [0, 0], [3], [0, 3]]
    assert len(DeltaTable(uri).file_uris()) == 3
    assert (offsets(uri), offsets(uri, 1)) == (list(range(30)), list(range(15)))
    assert_df_equality(
        as_read(spark, topics, topic, readMode="history"), as_read(spark, topics, topic), ignore_row_order=True
    )


def test_a_target_that_was_missed_is_a_finding(topics: Topics, make_context: Any, uri: str) -> None:
    topic = topics.create(retention_archive=uri, **LOG_APPEND)
    fill_days(topics, topic, 10)
    first = only_row(run(make_context(clock=ClockAhead(10 * HOUR_MS)), topic, lag_target="5h"))
    assert first.outcome == "done"  # there was no archive to be late
    assert 10 * HOUR_MS <= first.lag_before_ms < 15 * HOUR_MS

    fill_days(topics, topic, 10)
    late = run(make_context(clock=ClockAhead(10 * HOUR_MS)), topic, lag_target="5h")
    assert (late.status, late.findings) == (1, 1)
    row = only_row(late)
    assert (row.outcome, row.archived_to, row.offsets_left) == ("late", 20, 0)
    assert "old when it came into the table, the target is 18000.0 s" in row.reason

    fill_days(topics, topic, 10)
    assert run(make_context(), topic, lag_target="5h").status == 0


def test_aborted_records_are_left_out_and_an_open_transaction_is_named_once_it_is_old(
    topics: Topics, make_context: Any, uri: str
) -> None:
    topic = topics.create(retention_archive=uri, **LOG_APPEND)

    def transactional(name: str, values: str) -> KafkaProducer:
        own = {"transactional.id": f"{topic}-{name}", "transaction.timeout.ms": OPEN_MS}
        producer = KafkaProducer({"bootstrap.servers": topics.broker.kafka, **own})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, values, partition=0)
        producer.flush(PATIENCE_S)
        return producer

    transactional("a", "aborted").abort_transaction(PATIENCE_S)
    transactional("b", "committed").commit_transaction(PATIENCE_S)
    slow = transactional("c", "slow")
    transactional("d", "waits").commit_transaction(PATIENCE_S)
    log = describe(topics, topic)[TopicPartition(topic, 0)]

    row = only_row(run(make_context(), topic, lag_target="5h"))
    assert (row.outcome, row.archived_to, row.offsets_left) == ("done", log.last_stable_offset, 3)
    assert [row["value"] for row in archived_rows(uri)] == [b"committed"]
    assert run(make_context(), topic, lag_target="5h").rows.count() == 0  # nothing can be done, and it is not late yet

    held = run(make_context(clock=ClockAhead(10 * HOUR_MS)), topic, lag_target="5h")
    assert (held.status, only_row(held).outcome) == (1, "late")
    assert f"an open transaction holds back the offsets from {log.last_stable_offset} on" in only_row(held).reason

    slow.commit_transaction(PATIENCE_S)
    assert only_row(run(make_context(), topic, lag_target=NEVER_LATE)).offsets_left == 0
    assert [row["value"] for row in archived_rows(uri)] == [b"committed", b"slow", b"waits"]


DIES = textwrap.dedent(
    """
    import os, signal, sys
    from sparklog.jobs import archive, job
    from sparklog.jobs.options import parse_options
    from sparklog.spark.history import archive_table
    from sparklog.spark.session import local_session

    bootstrap, topic, reports, where = sys.argv[1:]
    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)
    if where == "before its commit":
        archive_table.ArchiveTable.commit = die
    else:
        job.append = die
    context = job.JobContext(spark=local_session("dies"), reports=reports, client={"bootstrap_servers": bootstrap})
    job.run_job(archive.JOB, context, parse_options(archive.JOB, {"topics": [topic]}))
    """
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "where", ["between commit and report", pytest.param("before its commit", marks=pytest.mark.soak_only)]
)
def test_a_run_that_is_killed_and_run_again_archives_each_offset_once(
    topics: Topics, make_context: Any, tmp_path: Path, uri: str, where: str
) -> None:
    topic = topics.create(retention_archive=uri, internal_segment_bytes=1500)
    fill_days(topics, topic, 50)
    arguments = [topics.bootstrap, topic, str(tmp_path / "reports"), where]
    killed = subprocess.run([sys.executable, "-c", DIES, *arguments], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert offsets(uri) == ([] if where == "before its commit" else list(range(50)))
    fill_days(topics, topic, 50, first=50)

    run(make_context(), topic)

    assert offsets(uri) == list(range(100))


def test_two_runs_at_once_archive_each_offset_once(topics: Topics, make_context: Any, uri: str) -> None:
    topic = topics.create(2, retention_archive=uri, internal_segment_bytes=1500)
    both = threading.Barrier(2, timeout=PATIENCE_S)
    for start in range(0, 90, 30):
        fill_days(topics, topic, 30, first=start)
        fill_days(topics, topic, 30, first=start, partition=1)
        done: list[Run] = []

        def once() -> None:
            context = make_context(say=lambda text: both.wait() if text.startswith("archiving") else None)
            done.append(run(context, topic, lag_target=NEVER_LATE))  # noqa: B023 - joined below

        threads = [threading.Thread(target=once) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        rows = [row for each in done for row in each.rows.collect()]
        assert sum(row.archived_records for row in rows) == 60
        assert {row.outcome for row in rows} == {"done"}
    assert (offsets(uri), offsets(uri, 1)) == (list(range(90)), list(range(90)))


def test_compaction_between_runs_takes_nothing_out_of_the_archive(
    topics: Topics, context: JobContext, make_context: Any, uri: str
) -> None:
    topic = topics.create(retention_archive=uri, cleanup_policy="compact", internal_segment_bytes=2000)
    send(topics, topic, [("a", "1"), ("b", "1"), ("a", "2")])
    run(make_context(), topic, lag_target=NEVER_LATE)
    close_segments(topics, topic)
    compact(context, topic)
    send(topics, topic, [("b", None), ("a", "3")])

    run(make_context(), topic, lag_target=NEVER_LATE)

    end = describe(topics, topic)[TopicPartition(topic, 0)].log_end_offset
    assert [row["offset"] for row in archived_rows(uri)][:3] == [0, 1, 2]
    assert [(row["key"], row["value"]) for row in archived_rows(uri)][-2:] == [(b"b", None), (b"a", b"3")]
    assert offsets(uri)[-1] == end - 1


def test_a_topic_that_was_made_again_under_the_same_name_is_not_mixed_with_the_old_one(
    topics: Topics, make_context: Any, uri: str
) -> None:
    topic = topics.create(retention_archive=uri)
    fill_days(topics, topic, 20)
    run(make_context(), topic)
    before = archived_rows(uri)
    topics.admin.delete_topics([topic])
    topics.admin.create_topic(topic, partitions=1, configs={"retention.archive": uri, "retention.ms": "-1"})
    topics.reconnect()
    fill_days(topics, topic, 40)

    refused = run(make_context(), topic)

    assert (refused.status, only_row(refused).outcome) == (1, "failed")
    assert "of an earlier topic of that name" in only_row(refused).reason
    assert archived_rows(uri) == before


def test_records_that_were_deleted_first_are_told(topics: Topics, make_context: Any, uri: str) -> None:
    topic = topics.create(retention_archive=uri)
    fill_days(topics, topic, 20)
    run(make_context(), topic)
    fill_days(topics, topic, 20)
    topics.delete_before(topic, 30)

    row = only_row(run(make_context(), topic))

    assert (row.outcome, row.reason) == ("lost", "offsets 20 to 29 were deleted before they were archived")
    assert offsets(uri) == [*range(20), *range(30, 40)]


@pytest.mark.slow
def test_a_broker_is_archived_on_after_a_kill_and_no_more_once_it_has_lost_records(
    make_context: Any, tmp_path: Path, uri: str
) -> None:
    with BrokerProcess(tmp_path) as broker:

        def archive() -> Row:
            context = make_context(client={"bootstrap_servers": broker.grpc})
            return only_row(run(context, "t", lag_target=NEVER_LATE))

        def produce(first: int) -> None:
            with Producer(bootstrap_servers=broker.grpc) as producer:
                for number in range(first, first + 100):
                    producer.send("t", b"%d" % number, partition=0)

        with Admin(bootstrap_servers=broker.grpc) as admin:
            admin.create_topic("t", partitions=1, configs={"retention.archive": uri})
        for first in (0, 100):
            produce(first)
            assert archive().outcome == "done"
            broker.kill()
            broker.start()
        rows = DeltaTable(uri).to_pyarrow_table(columns=["offset", "value"]).sort_by("offset").to_pylist()
        assert rows == [{"offset": number, "value": b"%d" % number} for number in range(200)]

        broker.kill()
        [log] = tmp_path.glob("**/t-0/*.log")
        os.truncate(log, log.stat().st_size - 1)  # as after a power cut: the last batch is torn
        broker.start()
        produce(200)
        refused = archive()
        assert refused.outcome == "failed"
        assert "offset 199 is of leader epoch" in refused.reason


@pytest.mark.parametrize("written", ["soon", "60 parsecs", "-1s"])
def test_a_target_that_is_no_time_is_refused(written: str) -> None:
    with pytest.raises(ConfigError, match="it must be a time such as 60s, 5m or 1500ms"):
        parse_options(JOB, {"lag_target": written})
