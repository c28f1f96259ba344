"""Writing a DataFrame to topics, in batch and from a stream: at least once, as Spark's Kafka sink.

    key          string or binary      null: any partition
    value        string or binary      required; null: a tombstone
    headers      array<struct<key: string, value: binary>>
    topic        string                required unless the option `topic` is given; the option wins
    partition    int                   null: by the key, as Kafka's default partitioner does
    timestamp    timestamp             null: now. Kafka's sink does not have this column

Other columns are left out. Every task sends its rows in Arrow, with a producer of its own, and ends once all rows are
acknowledged. A retried task sends all its rows again; no transaction removes the first copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from sparklog.base.errors import ConfigError, InvalidTopic
from sparklog.client import Producer
from sparklog.spark.columns import HEADERS
from sparklog.spark.source.options import WriteOptions

TEXT_OR_BYTES: tuple[DataType, ...] = (StringType(), BinaryType())
WRITTEN: dict[str, tuple[DataType, ...]] = {
    "key": TEXT_OR_BYTES,
    "value": TEXT_OR_BYTES,
    "headers": (HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
}
OF_RECORD = ("key", "value", "headers", "timestamp")


@dataclass(frozen=True, slots=True)
class TaskCommitMessage(WriterCommitMessage):
    """How many records a task wrote."""

    records: int


class TopicWriter(DataSourceArrowWriter):
    """Writes the rows of a batch."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use mode append")
        check_written(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        return send(iterator, self._options)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of each trigger."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_written(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        return send(iterator, self._options)


def check_written(schema: StructType, options: WriteOptions) -> None:
    """Raise ConfigError if a required column is missing or a column has the wrong type."""
    types = {field.name: field.dataType for field in schema.fields}
    for name, allowed in WRITTEN.items():
        texts = [each.simpleString() for each in allowed]
        if name in types and types[name].simpleString() not in texts:
            raise ConfigError(f"column {name} is {types[name].simpleString()}; it must be {' or '.join(texts)}")
    if "value" not in types:
        raise ConfigError(f"there is no column value, string or binary, among {', '.join(types)}")
    if options.topic is None and "topic" not in types:
        raise ConfigError("where to write? Give the option topic, or a column topic")


def send(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> TaskCommitMessage:
    """Send all rows, and return once they are acknowledged. Raises the errors of the producer."""
    records = 0
    with Producer(**options.producer) as producer:
        deliveries = []
        for batch in batches:
            for topic, partition, rows in routed(batch, options):
                deliveries.append(producer.send_table(topic, rows, partition=partition))
                records += rows.num_rows
        for delivery in deliveries:
            delivery.result()
    return TaskCommitMessage(records)


def routed(batch: pa.RecordBatch, options: WriteOptions) -> Iterator[tuple[str, int | None, pa.Table]]:
    """Yield the rows of `batch` by topic and partition (None: by the key); each group keeps its order.

    Raises InvalidTopic if a row's topic is null and the option `topic` is not given.
    """
    table = pa.Table.from_batches([batch])
    columns = [
        name for name in OF_RECORD if name in table.column_names and (name != "headers" or options.include_headers)
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
