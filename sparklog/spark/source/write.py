"""Writing a DataFrame to topics, in batch and from a stream.

    key          string or binary      null: any partition
    value        string or binary      required; null: a tombstone
                 With keyFormat or valueFormat, the column has the type to encode instead (encoding.py)
    headers      array<struct<key: string, value: binary>>
    topic        string                required unless the option `topic` is given; the option wins
    partition    int                   null: by the key, as Kafka's default partitioner does
    timestamp    timestamp             null: now. Kafka's sink does not have this column

Other columns are ignored. Every task sends its rows in Arrow, with a producer of its own, and ends once all rows are
acknowledged. A retried task sends all its rows again. With `deliveryGuarantee` = exactly_once, readers of committed
records see the rows of one attempt (sink.py); with at_least_once, of all attempts, as with Spark's Kafka sink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from sparklog.base.errors import ConfigError, InvalidTopic
from sparklog.client import Producer
from sparklog.client.sinks.sinks import BatchWinner
from sparklog.spark.columns import HEADERS
from sparklog.spark.shipping import TaskObject
from sparklog.spark.source.options import DeliveryGuarantee, WriteOptions
from sparklog.spark.source.sink import BatchPart, SinkBatch, abort, commit, current_batch, job_batch, task_attempt
from sparklog.spark.spark_api import HAS_STREAM_WRITES, DataSourceStreamArrowWriter, spark_version_error

TEXT_OR_BYTES: tuple[DataType, ...] = (StringType(), BinaryType())
WRITE_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "key": TEXT_OR_BYTES,
    "value": TEXT_OR_BYTES,
    "headers": (HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
}
RECORD_COLUMNS = ("key", "value", "headers", "timestamp")


@dataclass(frozen=True, slots=True)
class TaskCommitMessage(WriterCommitMessage):
    """The result of a task."""

    records: int
    part: BatchPart | None = None
    """Its part of a batch of a sink; None with AT_LEAST_ONCE, and for a task without rows."""


class TopicWriter(TaskObject, DataSourceArrowWriter):
    """Writes the rows of a batch."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use mode append")
        check_written(schema, options)
        self._options = options
        self._job = job_batch(uuid4(), options)
        """One for the whole job: Spark sends copies of this writer to the tasks and to the commit."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        return write_task(iterator, self._options, self._job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(batch_parts(messages), self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            abort(batch_parts(messages), self._options, self._job)


class TopicStreamWriter(TaskObject, DataSourceStreamArrowWriter):
    """Writes the rows of a trigger. Spark creates a writer for each trigger, and another one for its commit."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        if not HAS_STREAM_WRITES:
            raise spark_version_error("4.1", "writeStream, except with foreachBatch and a batch write in it,")
        if options.transaction is not None:
            raise ConfigError("a stream numbers its batches in its checkpoint: leave out txnAppId and txnVersion")
        check_written(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        return write_task(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commit(batch_parts(messages), self._options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        abort(batch_parts(messages), self._options)


def batch_parts(messages: Iterable[WriterCommitMessage | None]) -> list[BatchPart]:
    """Return the parts of the tasks that have ended well; the messages of other tasks are None."""
    return [each.part for each in messages if isinstance(each, TaskCommitMessage) and each.part is not None]


def check_written(schema: StructType, options: WriteOptions) -> None:
    """Raise ConfigError if a required column is missing or a column has the wrong type."""
    types = {field.name: field.dataType for field in schema.fields}
    typed = options.typed.columns if options.typed is not None else {}
    for name, allowed in WRITE_COLUMNS.items():
        texts = [each.simpleString() for each in allowed]
        if name not in typed and name in types and types[name].simpleString() not in texts:
            raise ConfigError(f"column {name} is {types[name].simpleString()}; it must be {' or '.join(texts)}")
    if "value" not in types:
        raise ConfigError(f"there is no column value, string or binary, among {', '.join(types)}")
    if options.topic is None and "topic" not in types:
        raise ConfigError("where to write? Give the option topic, or a column topic")


def write_task(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, job: SinkBatch | None = None
) -> TaskCommitMessage:
    """Write the rows of a task; return their number and, with exactly_once, the task's part of the batch.

    job: the batch of a batch writer; None for a stream
    """
    if options.guarantee is DeliveryGuarantee.AT_LEAST_ONCE:
        with Producer(**options.producer) as producer:
            return TaskCommitMessage(send(batches, options, producer).records)
    filled = (batch for batch in batches if batch.num_rows)
    if (first := next(filled, None)) is None:
        return TaskCommitMessage(0)  # most tasks of a shuffle have no rows: they need not join
    rows = chain([first], filled)
    sink_batch = current_batch(options, job)
    with task_attempt(sink_batch, options) as attempt:
        if attempt is None:
            for _ in rows:  # Spark counts rows, and keeps state, as they pass
                pass
            return TaskCommitMessage(0, BatchPart(sink_batch, None))
        written = send(rows, options, attempt.producer, attempt.check)
        return TaskCommitMessage(written.records, BatchPart(sink_batch, BatchWinner(attempt.identity, written.topics)))


@dataclass(frozen=True, slots=True)
class SendResult:
    """The acknowledged records: their number, and their partitions by topic."""

    records: int
    topics: Mapping[str, Sequence[int]]


def send(
    batches: Iterator[pa.RecordBatch],
    options: WriteOptions,
    producer: Producer,
    check: Callable[[], None] = lambda: None,
) -> SendResult:
    """Send all rows, and return once they are acknowledged.

    check: called between batches; its error ends the writing

    Raises the errors of `check` and of the producer, and MalformedRecord for a row that cannot be encoded.
    """
    records = 0
    deliveries = []
    encoded = options.encoding.start(options.topic) if options.encoding is not None else None
    for batch in batches:
        check()
        table = encoded.encode(batch) if encoded else pa.Table.from_batches([batch])
        for topic, partition, rows in route(table, options):
            deliveries.append(producer.send_table(topic, rows, partition=partition))
            records += rows.num_rows
    topics: dict[str, set[int]] = {}
    for delivery in deliveries:
        metadata = delivery.result()
        topics.setdefault(metadata.topic, set()).update(each.partition for each in metadata.ranges)
    check()
    return SendResult(records, {topic: sorted(partitions) for topic, partitions in topics.items()})


def route(table: pa.Table, options: WriteOptions) -> Iterator[tuple[str, int | None, pa.Table]]:
    """Yield the rows of a table by topic and partition (None: by the key); each group keeps its order.

    Raises InvalidTopic if a row's topic is null and the option `topic` is not given.
    """
    columns = [
        name for name in RECORD_COLUMNS if name in table.column_names and (name != "headers" or options.include_headers)
    ]
    for topic, of_topic in _by_topic(table, options.topic):
        for partition, rows in _by_partition(of_topic):
            if rows.num_rows:
                yield topic, partition, rows.select(columns)


def _by_topic(table: pa.Table, topic: str | None) -> Iterator[tuple[str, pa.Table]]:
    if topic is not None:
        yield topic, table
        return
    if table["topic"].null_count:
        raise InvalidTopic("a row's topic is null, and there is no option topic")
    for each in pc.unique(table["topic"]).to_pylist():
        yield each, table.filter(pc.equal(table["topic"], each))


def _by_partition(table: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    if "partition" not in table.column_names:
        yield None, table
        return
    column = table["partition"]
    for each in pc.unique(column).to_pylist():
        yield each, table.filter(pc.is_null(column) if each is None else pc.equal(column, each))
