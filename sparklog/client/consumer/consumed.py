"""Conversion of fetched batches to the results of `poll` and `poll_arrow`: records, or Arrow tables.

Each step converts a whole column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.base.ids import TopicPartition
from sparklog.records.arrow import COLUMNS, schema

CONSUMED = pa.schema([("topic", pa.string()), ("partition", pa.int32()), *schema()])
"""The columns of `poll_arrow`."""

Deserializer = Callable[[bytes], Any]


class ConsumerRecord(NamedTuple):
    """A record from a partition. `timestamp_type` is 0 for the producer's time and 1 for the broker's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]


def to_records(
    partition: TopicPartition, rows: Any, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
) -> tuple[list[ConsumerRecord], Exception | None]:
    """Return rows as records, up to the first failure of a deserializer, and the exception of that, if any.

    Deserializers are not called for null.
    """
    try:
        return _to_records(partition, rows, key_deserializer, value_deserializer), None
    except Exception:  # noqa: BLE001 - whatever a deserializer of the user's raises
        records: list[ConsumerRecord] = []
        for row in range(rows.num_rows):
            try:
                records += _to_records(partition, rows.slice(row, 1), key_deserializer, value_deserializer)
            except Exception as error:  # noqa: BLE001 - as above
                error.add_note(
                    f"the record at offset {rows.column('offset')[row]} of {partition}: seek past it to continue"
                )
                return records, error
        return records, None


def _to_records(
    partition: TopicPartition, rows: Any, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
) -> list[ConsumerRecord]:
    count = rows.num_rows
    make = ConsumerRecord._make
    columns = (
        [partition.topic] * count,
        [partition.partition] * count,
        rows.column("offset").to_pylist(),
        rows.column("timestamp").view(pa.int64()).to_pylist(),
        rows.column("timestampType").to_pylist(),
        _deserialized(rows.column("key").to_pylist(), key_deserializer),
        _deserialized(rows.column("value").to_pylist(), value_deserializer),
        _headers(rows.column("headers")),
    )
    return [make(row) for row in zip(*columns, strict=True)]


def to_table(parts: list[tuple[TopicPartition, Any]]) -> Any:
    """Return rows of several partitions as one table of the schema CONSUMED."""
    batches = []
    for partition, rows in parts:
        topic = pa.repeat(partition.topic, rows.num_rows)
        number = pa.repeat(pa.scalar(partition.partition, pa.int32()), rows.num_rows)
        columns = [topic, number, *(rows.column(name) for name in COLUMNS)]
        batches.append(pa.record_batch(columns, schema=CONSUMED))
    return pa.Table.from_batches(batches, schema=CONSUMED)


def _deserialized(values: list[Any], deserializer: Deserializer | None) -> list[Any]:
    if deserializer is None:
        return values
    return [None if value is None else deserializer(value) for value in values]


def _headers(column: Any) -> list[tuple[tuple[str, bytes | None], ...]]:
    """Return the headers of each record as pairs. Without any header, no work is done per record."""
    if len(column.flatten()) == 0:
        return [()] * len(column)
    return [tuple((item["key"], item["value"]) for item in items or ()) for items in column.to_pylist()]
