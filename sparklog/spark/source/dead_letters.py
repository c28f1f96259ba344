"""Malformed records that a read copies to another topic, as Kafka Connect does with its dead letter queue.

A copy has the key, value, headers and timestamp of the record. More headers, with Connect's names and with texts as
values, name the record's place and the mistake:

    __connect.errors.topic, __connect.errors.partition, __connect.errors.offset, __connect.errors.exception.message

A task writes the copies, and waits until they are acknowledged, before it returns the rows of that batch. So a
checkpoint or a group commits an offset only after the malformed records below it are in that topic. A task that runs
again writes them again, and so does each pass over a batch: Spark reads the input of a sort twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.spark.source.options import ConnectionOptions

if TYPE_CHECKING:
    from sparklog.client import Producer

TOPIC, PARTITION, OFFSET, MESSAGE = (
    f"__connect.errors.{each}" for each in ("topic", "partition", "offset", "exception.message")
)
COPIED = ("key", "value", "headers", "timestamp")
NEEDED = (*COPIED, "offset")
MAX_REQUEST_BYTES = 64 << 20
"""A copy is larger than its record. The topic's `max.message.bytes` limits it, not the producer."""


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """The topic that gets malformed records. Implements DeadLetterTarget."""

    topic: str
    broker: ConnectionOptions

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns of a record that its copy needs."""
        return NEEDED

    def open(self) -> DeadLetterProducer:
        """Return the writer of a task's dead letters."""
        return DeadLetterProducer(self)


class DeadLetterProducer:
    """Writes the malformed records of a task; connects for the first one. Implements DeadLetterWriter."""

    def __init__(self, to: DeadLetterTopic) -> None:
        self._to = to
        self._producer: Producer | None = None

    def write(self, records: pa.RecordBatch, partition: TopicPartition, reasons: Sequence[str]) -> None:
        """Copy the records, each with the reason why it is malformed, and wait until all are acknowledged.

        records: with the columns NEEDED
        Raises the errors of the producer. The query then fails, and no record is lost.
        """
        if self._producer is None:
            from sparklog.client import Producer  # loads the gRPC client: only for tasks that meet such records

            broker = self._to.broker
            self._producer = Producer(
                bootstrap_servers=broker.bootstrap_servers, max_request_size=MAX_REQUEST_BYTES, **broker.security
            )
        columns = {name: records.column(name) for name in COPIED}
        columns["headers"] = with_headers(
            records.column("headers"), _error_headers(records.column("offset"), partition, reasons)
        )
        try:
            self._producer.send_table(self._to.topic, pa.table(columns)).result()
        except KafkaError as error:
            error.add_note(
                f"the dead letters of {partition} cannot be written to {self._to.topic}, the deadLetterTopic"
            )
            raise

    def close(self) -> None:
        """Disconnect. `write` connects again."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None


def _error_headers(offsets: pa.Array, partition: TopicPartition, reasons: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the names of the added headers, each with its value for every record."""
    rows = len(reasons)
    return [
        (TOPIC, [partition.topic] * rows),
        (PARTITION, [str(partition.partition)] * rows),
        (OFFSET, [str(each) for each in offsets.to_pylist()]),
        (MESSAGE, list(reasons)),
    ]


def with_headers(headers: pa.Array, added: Sequence[tuple[str, Sequence[str]]]) -> pa.Array:
    """Return a column of headers with `added` after those of each row, which may have headers of the same names.

    added: names, each with its value for every row
    """
    rows, more = len(headers), len(added)
    kept: Any = headers.flatten()
    of_rows = kept.type
    names = pa.array([name for _ in range(rows) for name, _ in added], of_rows.field("key").type)
    texts = pa.array([values[row].encode() for row in range(rows) for _, values in added], of_rows.field("value").type)
    entries = pa.concat_arrays([kept, pa.StructArray.from_arrays([names, texts], fields=list(of_rows))])
    before = np.asarray(headers.value_lengths().fill_null(0)).astype(np.int64)
    row_of = np.concatenate([np.repeat(np.arange(rows), before), np.repeat(np.arange(rows), more)])
    order = np.argsort(row_of, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(before + more)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), entries.take(pa.array(order)), type=headers.type)
