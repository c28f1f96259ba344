"""Writes that readers of committed records see once and as a whole, though tasks and drivers fail at any step.

The source `faulty` is the sparklog source with faults. A file in the folder of its option `faults`, named after a step,
makes that step fail once; a named pipe makes it wait until the pipe is closed.

    write     a task has sent its rows, and they are acknowledged
    commit    the driver is about to commit
    answer    the driver has committed, and does not get the answer: Spark calls abort()
    abort     not a fault: the file is made when Spark calls abort()
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StringType, StructType

from sparklog.base.errors import InvalidTxnState, TransactionalIdNotFound
from sparklog.client import Producer
from sparklog.client.sinks.sinks import SinkBatchId, SinkDescription
from sparklog.client.sinks.sync import SinkClient
from sparklog.spark.source import sink
from sparklog.spark.source.option_parsing import parse_write_options
from sparklog.spark.source.source import SparklogDataSource
from sparklog.spark.source.write import TopicStreamWriter, TopicWriter, batch_parts, write_task
from support.names import unique
from support.patience import PATIENCE_S, wait_until
from support.spark_topics import make_reader, rows_of

pytestmark = pytest.mark.slow

ROWS, AT_ONCE = 40, 20
"""Two triggers."""
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}
TIMEOUT_MS = 60_000
RUN = str(uuid4())


class Faults:
    """Makes steps of a writer fail."""

    folder: Path

    def come_to(self, step: str) -> None:
        path = self.folder / step
        if path.is_fifo():
            path.read_bytes()
        elif path.exists():
            path.unlink()
            raise OSError(f"no luck at {step}")

    def write(self, iterator: Any) -> Any:
        message = super().write(iterator)  # type: ignore[misc]
        if message.records:
            self.come_to("write")
        return message

    def commit(self, *args: Any) -> None:
        self.come_to("commit")
        super().commit(*args)  # type: ignore[misc]
        self.come_to("answer")

    def abort(self, *args: Any) -> None:
        (self.folder / "abort").touch()
        super().abort(*args)  # type: ignore[misc]


class FaultyWriter(Faults, TopicWriter):
    pass


class FaultyStreamWriter(Faults, TopicStreamWriter):
    pass


class FaultySource(SparklogDataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def _options(self) -> Any:
        return parse_write_options({name: text for name, text in self.options.items() if name != "faults"})

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return self._with_faults(FaultyWriter(self._options(), schema, overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        return self._with_faults(FaultyStreamWriter(self._options(), schema))

    def _with_faults(self, writer: Any) -> Any:
        writer.folder = Path(self.options["faults"])
        return writer


@pytest.fixture(autouse=True)
def faults(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of faults; the workers of Spark get the source by value, as they cannot import tests."""
    folder = tmp_path / "faults"
    folder.mkdir()
    if "spark" in request.fixturenames:
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        request.getfixturevalue("spark").dataSource.register(FaultySource)
    return folder


@pytest.fixture
def sinks(topics) -> Iterator[SinkClient]:
    with SinkClient(bootstrap_servers=topics.bootstrap, retry_backoff_ms=10) as client:
        yield client


class Copy:
    """A query that copies a topic into another one, from run to run with one checkpoint."""

    def __init__(self, spark: SparkSession, topics: Any, folder: Path, **options: str) -> None:
        self.source, self.target = topics.create(2), topics.create(2)
        for partition in (0, 1):
            topics.fill(self.source, ROWS // 2, partition=partition)
        self.checkpoint = folder / "checkpoint"
        self._reader = (
            spark.readStream.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
            .option("subscribe", self.source).option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", AT_ONCE)
        )  # fmt: skip
        self.plain = {"kafka.bootstrap.servers": topics.bootstrap, **options}
        self._faults = str(folder / "faults")

    def start(self, foreach_batch: Any = None) -> StreamingQuery:
        frame = self._reader.load().selectExpr("concat(cast(partition AS string), '-', cast(offset AS string)) value")
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        if foreach_batch is not None:
            return writer.foreachBatch(foreach_batch).start()
        return writer.format("faulty").options(**self.plain, topic=self.target, faults=self._faults).start()

    def run(self, foreach_batch: Any = None) -> None:
        assert self.start(foreach_batch).awaitTermination(PATIENCE_S)

    def fail(self, foreach_batch: Any = None) -> str:
        with pytest.raises(StreamingQueryException) as failed:
            self.run(foreach_batch)
        return str(failed.value)

    def forget_last_commit(self) -> None:
        """Change the checkpoint as if the driver had stopped before it wrote Spark's commit log."""
        newest = max((each for each in (self.checkpoint / "commits").iterdir() if each.name.isdigit()), key=number_of)
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)

    @property
    def sink_id(self) -> str:
        return f"spark-{(self.checkpoint / 'metadata').read_text().split(chr(34))[3]}"

    @property
    def expected(self) -> dict[str, int]:
        return {f"{partition}-{offset}": 1 for partition in (0, 1) for offset in range(ROWS // 2)}


def number_of(path: Path) -> int:
    return int(path.name)


@pytest.fixture
def copy(spark, topics, tmp_path) -> Copy:
    return Copy(spark, topics, tmp_path)


@pytest.fixture
def values(topics):
    """How often each value is in a topic."""

    def count(topic: str, **options: str) -> Counter[str]:
        reader = make_reader({"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, **options})
        return Counter(row["value"].decode() for row in rows_of(reader))

    return count


def described(sinks: SinkClient, sink_id: str) -> SinkDescription:
    """The sink, once its batch has ended."""

    def look() -> SinkDescription | None:
        found = sinks.describe(sink_id)
        return found if found.state.startswith("Complete") else None

    return wait_until(look, "the batch ends")


@contextmanager
def held_at(step: Path) -> Iterator[None]:
    """Make the query or job wait at the step inside of the block."""

    def enter() -> int | None:
        with suppress(OSError):  # nobody reads from the pipe yet
            return os.open(step, os.O_WRONLY | os.O_NONBLOCK)
        return None

    pipe = wait_until(enter, f"it comes to {step.name}")
    try:
        yield
    finally:
        step.unlink()
        os.close(pipe)


# Streams


@pytest.mark.parametrize("step", ["write", "commit"])
def test_a_batch_that_fails_before_its_commit_is_seen_once_it_is_written_again(copy, faults, values, sinks, step):
    (faults / step).touch()
    assert f"no luck at {step}" in copy.fail()
    assert values(copy.target) == {}
    assert values(copy.target, **UNCOMMITTED)
    copy.run()
    assert described(sinks, copy.sink_id).committed_batch_id == ROWS // AT_ONCE - 1
    assert values(copy.target) == copy.expected
    assert values(copy.target, **UNCOMMITTED).total() > ROWS


def test_a_batch_whose_commit_has_no_answer_is_neither_undone_nor_written_again(copy, faults, values, sinks):
    (faults / "answer").touch()
    assert "no luck at answer" in copy.fail()
    assert (faults / "abort").exists()
    assert described(sinks, copy.sink_id).committed_batch_id == 0
    assert values(copy.target).total() == AT_ONCE
    copy.run()
    described(sinks, copy.sink_id)
    assert values(copy.target) == values(copy.target, **UNCOMMITTED) == copy.expected


def test_a_batch_that_is_not_in_sparks_commit_log_is_not_written_again(copy, values, sinks):
    copy.run()
    run_id = described(sinks, copy.sink_id).committed_run_id
    copy.forget_last_commit()
    copy.run()
    assert described(sinks, copy.sink_id).committed_run_id == run_id
    assert values(copy.target) == values(copy.target, **UNCOMMITTED) == copy.expected


def test_a_checkpoint_that_is_deleted_begins_anew(copy, values, sinks):
    copy.run()
    shutil.rmtree(copy.checkpoint)
    copy.run()
    described(sinks, copy.sink_id)
    assert values(copy.target) == dict.fromkeys(copy.expected, 2)


def test_a_driver_whose_query_was_taken_over_from_a_copied_checkpoint_fails_loudly(copy, faults, values, sinks):
    os.mkfifo(faults / "commit")
    query = copy.start()
    elsewhere = SinkBatchId(copy.sink_id, "elsewhere", 0)
    with held_at(faults / "commit"):
        assert sinks.join(elsewhere, timeout_ms=TIMEOUT_MS) is not None
    with pytest.raises(StreamingQueryException, match=r"ProducerFenced.* was replaced by run elsewhere"):
        query.awaitTermination(PATIENCE_S)
    sinks.abort(elsewhere)
    described(sinks, copy.sink_id)
    assert values(copy.target) == {}
    copy.run()
    described(sinks, copy.sink_id)
    assert values(copy.target) == copy.expected


def test_at_least_once_shows_what_was_written_before_a_failure(spark, topics, tmp_path, faults, values, sinks):
    copy = Copy(spark, topics, tmp_path, deliveryGuarantee="at_least_once")
    (faults / "commit").touch()
    copy.fail()
    assert values(copy.target).total() == AT_ONCE
    copy.run()
    assert values(copy.target).keys() == copy.expected.keys()
    assert values(copy.target).total() == ROWS + AT_ONCE
    with pytest.raises(TransactionalIdNotFound):
        sinks.describe(copy.sink_id)


# Several writes in one batch of a query


@pytest.mark.parametrize("failing", ["between", "after"])
def test_writes_in_foreach_batch_are_there_once_each(copy, topics, values, sinks, failing):
    """Two topics have a sink each; an option distinguishes writes to one topic."""
    other, failures = topics.create(), [failing]
    writes = [{"topic": copy.target}, {"topic": other, "sparkSinkId": "a"}, {"topic": other, "sparkSinkId": "b"}]

    def write(frame: DataFrame, batch_id: int) -> None:
        for number, options in enumerate(writes):
            frame.write.format("sparklog").options(**copy.plain, **options).mode("append").save()
            if batch_id == 1 and failures == ["between"] and number == 1:
                raise OSError(f"no luck {failures.pop()}")
        if batch_id == 1 and failures:
            raise OSError(f"no luck {failures.pop()}")

    assert f"no luck {failing}" in copy.fail(write)
    copy.run(write)
    ids = [f"{copy.sink_id}-{suffix}" for suffix in (copy.target, "a", "b")]
    assert [described(sinks, each).committed_batch_id for each in ids] == [ROWS // AT_ONCE - 1] * 3
    assert values(copy.target) == values(copy.target, **UNCOMMITTED) == copy.expected
    assert values(other) == values(other, **UNCOMMITTED) == dict.fromkeys(copy.expected, 2)


def test_a_second_write_to_a_topic_in_foreach_batch_asks_for_an_id(copy, topics, values, sinks):
    def write(frame: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            frame.write.format("sparklog").options(**copy.plain, topic=copy.target).mode("append").save()

    assert "needs a sink of its own for each write" in copy.fail(write)
    described(sinks, f"{copy.sink_id}-{copy.target}")
    assert values(copy.target).total() == AT_ONCE


def test_a_write_in_another_job_group_than_the_querys_fails_before_anything_is_committed(copy, spark, values, sinks):
    """The name of the group is the same in every run: after a restart, no batch could be told from a second write."""

    def write(frame: DataFrame, batch_id: int) -> None:
        spark.sparkContext.setJobGroup("etl", "the user's own")
        frame.write.format("sparklog").options(**copy.plain, topic=copy.target).mode("append").save()

    assert "do not call setJobGroup before it" in copy.fail(write)
    assert values(copy.target, **UNCOMMITTED) == {}
    with pytest.raises(TransactionalIdNotFound):
        sinks.describe(f"{copy.sink_id}-{copy.target}")


# Batch jobs


def save(frame: DataFrame, topics: Any, faults: Path, topic: str, **options: str) -> None:
    writer = frame.write.format("faulty").option("kafka.bootstrap.servers", topics.bootstrap).options(**options)
    writer.option("faults", str(faults)).option("topic", topic).mode("append").save()


def test_the_rows_of_a_job_appear_at_once(spark, topics, faults, values):
    target = topics.create(3)
    frame = spark.range(ROWS, numPartitions=3).selectExpr("cast(id AS string) value")
    os.mkfifo(faults / "commit")

    def look() -> tuple[Counter[str], Counter[str]]:
        with held_at(faults / "commit"):
            return values(target), values(target, **UNCOMMITTED)

    with ThreadPoolExecutor(1) as threads:
        seen = threads.submit(look)
        save(frame, topics, faults, target)
        assert seen.result() == ({}, dict.fromkeys(map(str, range(ROWS)), 1))
    assert values(target) == dict.fromkeys(map(str, range(ROWS)), 1)


@pytest.mark.parametrize("step", ["write", "commit"])
def test_a_job_that_fails_leaves_no_row_and_holds_up_no_reader(spark, topics, faults, values, step):
    target = topics.create()
    frame = spark.range(ROWS, numPartitions=3).selectExpr("cast(id AS string) value")
    (faults / step).touch()
    with pytest.raises(PySparkException, match=f"no luck at {step}"):
        save(frame, topics, faults, target)
    topics.fill(target, 1)
    wait_until(lambda: values(target) == {"v0": 1}, "the job's batch is aborted", every_s=0.1)
    assert values(target, **UNCOMMITTED).total() > 1
    save(frame, topics, faults, target)
    assert values(target).total() == ROWS + 1


def test_a_job_that_its_application_numbers_is_written_once(spark, topics, faults, values, sinks):
    """As with Delta, a write that is not newer than the last one is skipped. Each topic counts on its own."""
    target, other, application = topics.create(), topics.create(), unique("nightly")
    once = dict.fromkeys(map(str, range(ROWS)), 1)

    def write(version: int, topic: str = target, offset: int = 0) -> None:
        frame = spark.range(offset, offset + ROWS, numPartitions=2).selectExpr("cast(id AS string) value")
        save(frame, topics, faults, topic, txnAppId=application, txnVersion=str(version))

    (faults / "commit").touch()
    with pytest.raises(PySparkException, match="no luck at commit"):
        write(20261125)
    (faults / "answer").touch()
    with pytest.raises(PySparkException, match="no luck at answer"):
        write(20261125)
    for version in (20261125, 20261124):
        write(version)
    write(20261125, other)
    assert values(target) == values(other) == once
    assert described(sinks, f"spark-app-{application}/{target}").committed_batch_id == 20261125
    write(20261126, offset=ROWS)
    assert values(target) == dict.fromkeys(map(str, range(2 * ROWS)), 1)


def test_a_stream_leaves_the_numbers_to_its_checkpoint(spark, topics, tmp_path):
    copy = Copy(spark, topics, tmp_path, txnAppId="a", txnVersion="1")
    assert "leave out txnAppId and txnVersion" in copy.fail()


def test_a_job_without_rows_commits_nothing(spark, topics, faults, values, sinks):
    target, before = topics.create(), sinks.list()
    save(spark.range(0).selectExpr("cast(id AS string) value"), topics, faults, target)
    assert values(target) == {}
    assert sinks.list() == before


# Tasks, without a JVM


class FakeTask:
    """The context that Spark gives to a task of a stream."""

    def __init__(self, query_id: str, run_id: str, batch_id: int) -> None:
        names = (sink.QUERY_ID, sink.RUN_ID, sink.BATCH_ID)
        self._properties = dict(zip(names, (query_id, run_id, str(batch_id)), strict=True))

    def get(self) -> FakeTask:
        return self

    def getLocalProperty(self, name: str) -> str:  # noqa: N802
        return self._properties[name]


class Task:
    """Tasks of a stream in this process."""

    def __init__(self, topics: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}
        self.options = parse_write_options(options)
        self.query_id = unique("query")
        self._monkeypatch = monkeypatch

    def write(self, run_id: str, batch_id: int, *values: str) -> Any:
        self._monkeypatch.setattr(sink, "TaskContext", FakeTask(self.query_id, run_id, batch_id))
        rows = pa.record_batch({"value": pa.array(values, pa.string())})
        self.left = iter([rows.slice(0, 0), *(rows.slice(number, 1) for number in range(len(values)))])
        return write_task(self.left, self.options)

    def commit(self, *messages: Any) -> None:
        sink.commit(batch_parts(messages), self.options)


@pytest.fixture
def task(topics, monkeypatch) -> Task:
    return Task(topics, topics.create(), monkeypatch)


def test_only_the_attempts_whose_messages_spark_passes_on_are_seen(task, values, sinks):
    """As with speculative tasks: both attempts end well, and the commit names one of them."""
    loser, winner, other = (task.write(RUN, 0, *rows) for rows in (["a", "b"], ["a", "b"], ["c"]))
    task.commit(winner, None, other)
    described(sinks, f"spark-{task.query_id}")
    assert values(task.options.topic) == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(InvalidTxnState, match="was committed without these task attempts"):
        task.commit(loser)


def test_tasks_of_a_committed_batch_read_their_rows_and_say_that_they_are_skipped(task, caplog):
    task.commit(task.write(RUN, 0, "a", "b"))
    with caplog.at_level(logging.WARNING, sink.__name__):
        again = task.write(str(uuid4()), 0, "a", "b")
        assert next(task.left, None) is None
        task.commit(again)
    assert again.records == 0
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        f"batch 0 of spark-{task.query_id} is committed: its rows are skipped",
        f"batch 0 of spark-{task.query_id} was committed by an earlier run of the query: nothing was written",
    ]


def test_applications_and_topics_with_dashes_have_sinks_of_their_own(topics, values):
    name = unique("sales")
    for application, topic in (("daily", f"report-{name}"), ("daily-report", name)):
        topics.admin.create_topic(topic, partitions=1)
        options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}
        numbered = parse_write_options({**options, "txnAppId": application, "txnVersion": "1"})
        writer = TopicWriter(numbered, StructType().add("value", StringType()), overwrite=False)
        writer.commit([writer.write(iter([pa.record_batch({"value": pa.array(["a"])})]))])
        assert values(topic) == {"a": 1}


def test_tasks_without_rows_do_not_join(task, sinks):
    task.commit(task.write(RUN, 0), task.write(RUN, 0))
    with pytest.raises(TransactionalIdNotFound):
        sinks.describe(f"spark-{task.query_id}")


def test_a_task_goes_on_longer_than_the_timeout_of_its_batch(task, topics, values, sinks, monkeypatch):
    options = {"kafka.bootstrap.servers": topics.bootstrap, "kafka.transaction.timeout.ms": "1000"}
    task.options = parse_write_options({**options, "topic": task.options.topic})
    renewed: list[SinkBatchId] = []
    renew = SinkClient.renew

    def count(self: SinkClient, batch: SinkBatchId, *args: Any, **kwargs: Any) -> None:
        renew(self, batch, *args, **kwargs)
        renewed.append(batch)

    monkeypatch.setattr(SinkClient, "renew", count)
    send_table = Producer.send_table

    def send_late(self: Producer, *args: Any, **kwargs: Any) -> Any:
        wait_until(lambda: len(renewed) > 4, "the batch is renewed for more than its timeout")
        return send_table(self, *args, **kwargs)

    monkeypatch.setattr(Producer, "send_table", send_late)
    task.commit(task.write(RUN, 0, "a"))
    described(sinks, f"spark-{task.query_id}")
    assert values(task.options.topic) == {"a": 1}
