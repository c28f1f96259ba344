"""Streams and writes over brokers that are stopped, killed and started again: a stream reads each record once and in
order, and what Spark writes is there once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparklog.client import Admin, Consumer, Producer
from sparklog.spark import broker
from sparklog.spark.columns import table_schema
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.stream import TopicStreamReader
from support.names import unique
from support.processes.broker import BrokerProcess
from support.processes.cluster import ClusterProcesses, partitions_of
from support.runs.seeds import first

pytestmark = [pytest.mark.slow, pytest.mark.soak]
PARTITIONS = 3
PATIENCE_S = 90
EVERY_S = 0.02
Log = list[list[tuple[int, bytes]]]
"""Offset and value of each record, by partition."""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("stream-cluster")) as running:
        yield running


@pytest.fixture
def cluster(processes: ClusterProcesses) -> ClusterProcesses:
    """All three brokers run, also after a test that has killed one."""
    processes.make_whole()
    return processes


def create(cluster: ClusterProcesses, purpose: str) -> str:
    """A topic of the test's own, with several segments in each partition before long."""
    topic = unique(purpose)
    with Admin(bootstrap_servers=cluster.grpc) as admin:
        admin.create_topic(topic, partitions=PARTITIONS, configs={"internal.segment.bytes": "10000"})
    cluster.wait_for_isr(3, topic)
    return topic


def ends(cluster: ClusterProcesses, topic: str) -> list[int]:
    """Return the end of the committed records of each partition; wait for leaders."""

    def look() -> list[int] | None:
        parts = cluster.topic(topic).partitions
        return [part.high_watermark for part in parts] if all(part.error is None for part in parts) else None

    return cluster.wait(look)


def log_of(cluster: ClusterProcesses, topic: str) -> Log:
    places = partitions_of(topic, PARTITIONS)
    found: Log = [[] for _ in places]
    with Consumer(bootstrap_servers=cluster.grpc, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        last = consumer.end_offsets(places)
        deadline = time.monotonic() + PATIENCE_S
        while any(consumer.position(place) < last[place] for place in places):
            assert time.monotonic() < deadline, "the records could not be read"
            for record in consumer.poll(1_000):
                found[record.partition].append((record.offset, record.value or b""))
    return found


def values_of(log: Log) -> list[list[bytes]]:
    return [[value for _, value in records] for records in log]


class Numbers:
    """Writes 0, 1, 2, … to the partitions in turn, with acks=all, from the beginning of a `with` block to its end."""

    def __init__(self, cluster: ClusterProcesses, topic: str) -> None:
        self.acknowledged: Log = [[] for _ in range(PARTITIONS)]
        self._topic = topic
        self._producer = Producer(bootstrap_servers=cluster.grpc, acks="all", linger_ms=1, request_timeout_ms=3_000)
        self._sent = 0
        self._failures: list[BaseException] = []
        self._told = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="numbers")

    def __enter__(self) -> Numbers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop, and return once all records are acknowledged."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        self._producer.close()
        assert not self._failures, self._failures[:3]

    def wait_for_progress(self) -> list[int]:
        """Until something is acknowledged in each partition that was sent after now; -> the offsets behind it."""
        before = self._sent

        def there() -> bool:
            return bool(self._failures) or all(told and int(told[-1][1]) >= before for told in self.acknowledged)

        with self._told:
            assert self._told.wait_for(there, PATIENCE_S), "nothing is acknowledged any more"
            assert not self._failures, self._failures[:3]
            return [told[-1][0] + 1 for told in self.acknowledged]

    def _write(self) -> None:
        while not self._stop.wait(EVERY_S):
            value, partition = b"%d" % self._sent, self._sent % PARTITIONS
            self._sent += 1
            self._producer.send(self._topic, value, partition=partition, on_delivery=self._note(value))

    def _note(self, value: bytes) -> Any:
        def note(metadata: Any, error: BaseException | None) -> None:
            with self._told:
                if error is None:
                    self.acknowledged[metadata.partition].append((metadata.offset, value))
                else:
                    self._failures.append(error)
                self._told.notify_all()

        return note


class Copy:
    """A query that keeps what it reads, batch by batch; it goes on from its checkpoint each time that it is started."""

    def __init__(self, spark: SparkSession, cluster: ClusterProcesses, topic: str, mode: str, folder: Path) -> None:
        stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", cluster.grpc)
        self._stream = stream.options(subscribe=topic, startingOffsets="earliest", readMode=mode)
        self._checkpoint = str(folder / mode)
        self._batches: dict[int, list[tuple[int, int, bytes]]] = {}
        self._taken = threading.Condition()

    def __enter__(self) -> Copy:
        writer = self._stream.load().writeStream.option("checkpointLocation", self._checkpoint)
        self._query = writer.foreachBatch(self._take).trigger(processingTime="500 milliseconds").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._query.stop()

    def wait_for(self, offsets: Sequence[int]) -> None:
        """Until the query has read each partition up to there. Fails as soon as the query has."""
        deadline = time.monotonic() + PATIENCE_S
        with self._taken:
            while any(len(records) < offset for records, offset in zip(self.log(), offsets, strict=True)):
                assert self._query.exception() is None, self._query.exception()
                assert time.monotonic() < deadline, f"{list(map(len, self.log()))}, not {offsets}"
                self._taken.wait(1)

    def log(self) -> Log:
        """What was read, in the order in which it came."""
        found: Log = [[] for _ in range(PARTITIONS)]
        for batch in sorted(self._batches):
            for partition, offset, value in self._batches[batch]:
                found[partition].append((offset, value))
        return found

    def _take(self, frame: DataFrame, batch: int) -> None:
        rows = [(row.partition, row.offset, bytes(row.value)) for row in frame.collect()]
        with self._taken:
            assert self._batches.get(batch, rows) == rows  # a batch that is run again has the same records
            self._batches[batch] = rows
            self._taken.notify_all()


def wait_for_all(copies: Sequence[Copy], offsets: Sequence[int]) -> None:
    for copy in copies:
        copy.wait_for(offsets)


def test_a_stream_reads_each_record_once_though_leaders_are_stopped_and_killed(
    spark: SparkSession, cluster: ClusterProcesses, tmp_path: Path
) -> None:
    topic = create(cluster, "read")
    copies = [Copy(spark, cluster, topic, mode, tmp_path) for mode in ("auto", "fetch")]
    ways: tuple[Callable[[BrokerProcess], None], ...] = (BrokerProcess.stop, BrokerProcess.kill)
    with Numbers(cluster, topic) as numbers:
        with ExitStack() as running:
            for copy in copies:
                running.enter_context(copy)
            wait_for_all(copies, numbers.wait_for_progress())
            for end in first(1, ways):
                victim = cluster.brokers[cluster.leader(topic)]
                end(victim)
                wait_for_all(copies, numbers.wait_for_progress())
                victim.start()
                cluster.wait_for_isr(3, topic)
        cluster.brokers[cluster.leader(topic)].kill()
        numbers.wait_for_progress()
    with ExitStack() as running:
        for copy in copies:
            running.enter_context(copy)
        wait_for_all(copies, ends(cluster, topic))
    written_log = log_of(cluster, topic)
    assert all(set(told) <= set(there) for told, there in zip(numbers.acknowledged, written_log, strict=True))
    assert [[offset for offset, _ in records] for records in written_log] == [
        list(range(len(records))) for records in written_log
    ]
    for copy in copies:
        assert copy.log() == written_log


def test_a_leader_that_hangs_holds_no_stream_up(cluster: ClusterProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "ANSWER_MS", 1_000)
    topic = create(cluster, "hanging")
    options = {"kafka.bootstrap.servers": cluster.grpc, "subscribe": topic}
    reader = TopicStreamReader(parse_read_options(options, OptionUse.STREAM), table_schema(include_headers=False))
    begin = reader.initialOffset()

    def read_on() -> list[int]:
        end = reader.latestOffset(begin, ReadAllAvailable())
        tasks = reader.partitions(begin, end)
        return [row["partition"] for task in tasks for rows in reader.read(task) for row in rows.to_pylist()]

    victim = cluster.brokers[cluster.leader(topic)]
    with Numbers(cluster, topic) as numbers, ThreadPoolExecutor(1) as pool:
        written = numbers.wait_for_progress()
        victim.pause()  # who reads has connections to it that will not break
        try:
            read = pool.submit(read_on).result(PATIENCE_S)
        finally:
            victim.resume()
    reader.stop()
    assert all(read.count(partition) >= offset for partition, offset in enumerate(written))


def test_a_stream_writes_each_record_once_and_in_order_though_a_leader_is_killed(
    spark: SparkSession, cluster: ClusterProcesses, tmp_path: Path
) -> None:
    source, target = create(cluster, "source"), create(cluster, "target")
    stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", cluster.grpc)
    frame = stream.options(subscribe=source, startingOffsets="earliest").load().select("value", "partition")
    writer = frame.writeStream.format("sparklog").option("kafka.bootstrap.servers", cluster.grpc)
    writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with Numbers(cluster, source) as numbers:
        query = writer.start()

        def wait_for_copies(offsets: list[int]) -> None:
            def there() -> bool:
                assert query.exception() is None, query.exception()
                read = json.loads(query.lastProgress.sources[0].endOffset)[source] if query.lastProgress else {}
                return all(read.get(str(partition), 0) >= offset for partition, offset in enumerate(offsets))

            cluster.wait(there)

        try:
            wait_for_copies(numbers.wait_for_progress())
            cluster.brokers[cluster.leader(target)].kill()
            wait_for_copies(numbers.wait_for_progress())
            numbers.stop()
            wait_for_copies(ends(cluster, source))
        finally:
            query.stop()
    assert values_of(log_of(cluster, target)) == values_of(log_of(cluster, source))


def test_a_batch_is_written_once_though_a_leader_is_killed_meanwhile(
    spark: SparkSession, cluster: ClusterProcesses
) -> None:
    topic, rows, tasks = create(cluster, "written"), 1_600, 16
    frame = spark.range(0, rows, 1, tasks).selectExpr(
        "cast(id AS string) AS value", f"cast(id % {PARTITIONS} AS int) AS partition"
    )
    writer = frame.write.format("sparklog").option("kafka.bootstrap.servers", cluster.grpc).option("topic", topic)
    victim, is_written = cluster.brokers[cluster.leader(topic)], threading.Event()

    def kill_meanwhile() -> bool:
        cluster.wait(lambda: is_written.is_set() or any(ends(cluster, topic)))
        victim.kill()
        return not is_written.is_set()

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_meanwhile)
        try:
            writer.mode("append").save()
        finally:
            is_written.set()
        assert killing.result(PATIENCE_S)
    found = [[int(value) for _, value in records] for records in log_of(cluster, topic)]
    assert [sorted(values) for values in found] == [list(range(part, rows, PARTITIONS)) for part in range(PARTITIONS)]
