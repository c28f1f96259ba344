"""Topics as Arrow tables: folders of Kafka, of a running broker, and folders that change during the read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.arrow import read_table, record_batches
from sparklog.base.errors import ConfigError, DataLost, UnknownTopicOrPartition
from sparklog.base.fs import LocalFs
from sparklog.spark.columns import table_schema as spark_schema
from sparklog.spark.spark_api import arrow_schema
from sparklog.testing import start_broker
from support import GOLDEN
from support.golden import FOLDERS, expected_rows
from support.logs.transactional_folder import TransactionalFolder
from support.patience import wait_until
from support.spark_topics import Topics

pytestmark = pytest.mark.slow

EVERYTHING = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in the form of `expected_rows`."""
    return [
        (*list(row.values())[:-1], [(header["key"], header["value"]) for header in row["headers"]])
        for row in table.to_pylist()
    ]


def offsets(table: pa.Table) -> list[int]:
    return table.column("offset").to_pylist()


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    intervals = {"replica_high_watermark_checkpoint_interval_ms": 50, "log_retention_check_interval_ms": 50}
    with start_broker(tmp_path_factory.mktemp("broker"), log_retention_ms=-1, **intervals) as broker:
        made = Topics(broker)
        yield made
        made.close()


def timed(topics: Topics, count: int = 60, **configs: Any) -> str:
    """A topic with the timestamp N s for record N, in segments of three records."""
    topic = topics.create(segment_bytes=1 << 20, **configs)
    times = pa.array([number * 1000 for number in range(count)], pa.timestamp("ms", "UTC"))
    for first in range(0, count, 3):
        topics.fill(topic, 3, value=[bytes(300_000)] * 3, timestamp=times.slice(first, 3))
    topics.await_checkpoint(topic, count)
    return topic


@pytest.fixture(scope="module")
def seconds(topics: Topics) -> str:
    return timed(topics)


class TestKafkasFolders:
    @pytest.mark.parametrize("name", FOLDERS)
    def test_all_records_are_as_kafka_says(self, name):
        topic, _, number = name.rpartition("-")
        table = read_table(str(GOLDEN), topic, [int(number)], columns=EVERYTHING, isolation_level="read_uncommitted")
        assert rows(table) == expected_rows(GOLDEN / name)

    def test_records_of_open_and_aborted_transactions_are_left_out(self):
        table = read_table(str(GOLDEN / "transactional-0"), "transactional", columns=EVERYTHING)
        assert rows(table) == expected_rows(GOLDEN / "transactional-0", "expected-committed")

    def test_a_uri_is_read_through_its_file_system(self):
        assert read_table(f"file://{GOLDEN}", "codec-lz4").num_rows == 200

    def test_names_and_types_are_those_of_the_spark_source(self):
        table = read_table(str(GOLDEN), "segments", columns=EVERYTHING)
        assert table.schema == arrow_schema(spark_schema(include_headers=True))
        assert read_table(str(GOLDEN), "segments").schema == arrow_schema(spark_schema(include_headers=False))


class TestARunningBroker:
    def test_only_what_the_checkpoint_says_is_committed_is_read(self, topics):
        topic = topics.create(partitions=2)
        topics.fill(topic, 5)
        topics.await_checkpoint(topic, 5)
        topics.fill(topic, 4, partition=1)
        wait_until(lambda: read_table(topics.broker.data_dir, topic, [1]).num_rows == 4, "the second checkpoint")
        table = read_table(str(topics.broker.data_dir), topic, columns=["partition", "value"])
        assert table.to_pylist() == [
            *({"partition": 0, "value": b"v%d" % number} for number in range(5)),
            *({"partition": 1, "value": b"v%d" % number} for number in range(4)),
        ]

    @given(low=st.integers(0, 60), high=st.integers(0, 60))
    def test_offsets_choose_the_records_between_them(self, topics, seconds, low, high):
        table = read_table(topics.folder(seconds), seconds, start=low, end=high, columns=["offset"])
        assert offsets(table) == list(range(low, high))

    @given(low=st.integers(-1, 70_000), high=st.integers(-1, 70_000))
    def test_times_choose_the_records_between_them(self, topics, seconds, low, high):
        start, end = (EPOCH + timedelta(milliseconds=each) for each in (low, high))
        table = read_table(topics.folder(seconds), seconds, start=start, end=end, columns=["offset"])
        assert offsets(table) == [number for number in range(60) if low <= number * 1000 < high]

    def test_partitions_have_positions_of_their_own(self, topics):
        topic = topics.create(partitions=2)
        for partition in (1, 0):
            topics.fill(topic, 6, partition=partition)
        topics.await_checkpoint(topic, 6)
        table = read_table(
            str(topics.broker.data_dir), topic, start={0: 2, 1: 4}, end={0: 3}, columns=["partition", "offset"]
        )
        assert [tuple(row.values()) for row in table.to_pylist()] == [(0, 2), (1, 4), (1, 5)]

    def test_segments_outside_the_times_are_not_opened(self, topics, tmp_path):
        topic = timed(topics)
        copied = tmp_path / "log" / f"{topic}-0"
        shutil.copytree(topics.folder(topic), copied)
        for log in sorted(copied.glob("*.log"))[:3]:
            log.write_bytes(bytes(log.stat().st_size))
        table = read_table(str(copied), topic, start=EPOCH + timedelta(seconds=40), end=EPOCH + timedelta(seconds=50))
        assert offsets(table) == list(range(40, 50))

    def test_deleted_records_are_missed_only_if_they_were_asked_for(self, topics):
        topic = timed(topics)
        topics.delete_before(topic, 30)
        wait_until(lambda: offsets(read_table(topics.folder(topic), topic))[0] == 30, "the log begins at 30")
        with pytest.raises(DataLost, match=f"{topic}-0 was to be read with start = 29, but has the offsets 30 to 60"):
            read_table(topics.folder(topic), topic, start=29)

    def test_records_that_are_deleted_during_a_read_are_reported(self, topics):
        topic = timed(topics, file_delete_delay_ms=0)
        reader = record_batches(topics.folder(topic), topic)
        topics.delete_before(topic, 60)
        wait_until(lambda: len(list(Path(topics.folder(topic)).glob("*.log*"))) == 1, "all other segments are deleted")
        with pytest.raises(DataLost, match="of the offsets 0 to 2, those below 3 are gone"):
            reader.read_all()

    def test_a_reader_keeps_little_in_memory(self, topics):
        topic = topics.create()
        topics.fill(topic, 400_000, batches=20)
        topics.await_checkpoint(topic, 400_000)
        before = pa.total_allocated_bytes()
        most = read = 0
        for batch in record_batches(topics.folder(topic), topic):
            read += batch.num_rows
            most = max(most, pa.total_allocated_bytes() - before)
        assert read == 400_000
        assert most < 16 << 20


class TestTransactions:
    @pytest.fixture
    def folder(self, tmp_path) -> TransactionalFolder:
        """Records, an aborted and a committed transaction, and an open one with a plain record after it."""
        made = TransactionalFolder(LocalFs(), str(tmp_path / "orders-0"))
        made.write()
        for producer_id in (7, 8, 9):
            made.write(producer_id)
        made.finish(7, commit=False)
        made.finish(8, commit=True)
        made.roll()
        made.write()
        made.checkpoint()
        return made

    def read(self, folder, **options) -> list[int]:
        return offsets(read_table(folder.folder, "orders", columns=["offset"], **options))

    def test_a_read_ends_before_the_first_open_transaction(self, folder):
        assert self.read(folder) == folder.readable == [0, 1, 4, 5]
        assert self.read(folder, isolation_level="read_uncommitted") == folder.records

    def test_an_end_that_is_not_decided_yet_is_refused(self, folder):
        assert self.read(folder, end=folder.last_stable_offset) == folder.readable
        with pytest.raises(ConfigError, match=f"a transaction is open from offset {folder.last_stable_offset} on"):
            self.read(folder, end=folder.end)
        folder.finish(9, commit=True)
        folder.checkpoint()
        assert self.read(folder, end=folder.end) == folder.readable


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            (("no-such-topic",), UnknownTopicOrPartition, "not in .*golden: no-such-topic"),
            (("segments", [0, 7]), UnknownTopicOrPartition, "segments-7"),
            (("segments", None, {"columns": ["offset", "size"]}), ConfigError, "no column size.*there are: key, value"),
            (("segments", None, {"start": datetime(2026, 1, 1)}), ConfigError, "needs a time zone"),
            (("segments", None, {"end": {3: 5}}), ConfigError, "end has partitions that are not read: 3"),
            (("segments", None, {"isolation_level": "all"}), ValueError, "all"),
        ],
    )
    def test_arguments_without_a_meaning_are_refused_at_once(self, arguments, error, text):
        topic, partitions, more = (*arguments, None, None)[:3]
        with pytest.raises(error, match=text):
            record_batches(str(GOLDEN), topic, partitions, **(more or {}))


def test_neither_spark_nor_grpc_is_loaded():
    program = (
        f"import sys, sparklog.arrow as a; a.read_table({str(GOLDEN)!r}, 'segments');"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'pyspark', 'grpc', 'pandas', 'deltalake'}))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
