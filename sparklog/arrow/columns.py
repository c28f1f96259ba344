"""The columns of a topic as an Arrow table. Names and types are those of Spark's Kafka source.

    key binary, value binary, topic string, partition int32, offset int64, timestamp timestamp[us, UTC],
    timestampType int32, headers list<struct<key: string, value: binary>>

Only requested columns are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.records.arrow import schema as records_schema
from sparklog.records.schema import UNITS_PER_MS

if TYPE_CHECKING:
    from sparklog.arrow.typed import DecodingPlan  # loads the decoders, which are not needed for bytes

OF_PARTITION = ("topic", "partition")
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_MILLISECONDS, _MICROSECONDS = pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")
_FARTHEST_MS = MAX_LONG // UNITS_PER_MS["us"]
MOST_ROWS = 1 << 20
"""Maximum rows of one record batch: the topic column must stay below the 2 GiB of Arrow's strings."""


def table_schema(columns: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the schema of these columns, in their order.

    types: types of other columns than COLUMNS: typed keys and values, and the column of malformed records

    Raises ConfigError for a column that a topic does not have.
    """
    fields = records_schema(timestamp_unit="us")
    raw = {"topic": pa.string(), "partition": pa.int32(), **dict(zip(fields.names, fields.types, strict=True))}
    known = {**{name: raw[name] for name in COLUMNS}, **types}
    if unknown := [name for name in columns if name not in known]:
        raise ConfigError(f"no column {unknown[0]} in a topic; there are: {', '.join(known)}")
    return pa.schema([(name, known[name]) for name in columns])


class TableShape:
    """Converter of record batches to the requested columns.

    decoding: the formats of keys and values; None: they stay bytes
    """

    def __init__(self, schema: pa.Schema, decoding: DecodingPlan | None = None) -> None:
        self.schema = schema
        names = schema.names if decoding is None else decoding.needs(schema.names)
        self.decoded = tuple(name for name in names if name not in OF_PARTITION)
        """Columns to decode; at least one, for the number of rows."""
        if not self.decoded:
            self.decoded = ("offset",)
        self._typed = None if decoding is None else decoding.start(schema.names)

    def apply(self, batches: Iterator[pa.RecordBatch], partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        """Yield records of one partition in the schema; `batches` have at least the columns `decoded`."""
        try:
            for records in batches:
                for first in range(0, records.num_rows, MOST_ROWS):
                    rows = records.slice(first, MOST_ROWS)
                    if self._typed is None:
                        yield self._batch(rows, {}, partition)
                        continue
                    for part, typed in self._typed.decode(rows, partition):
                        yield self._batch(part, typed, partition)
        finally:
            if self._typed is not None:
                self._typed.close()

    def _batch(self, rows: pa.RecordBatch, typed: Mapping[str, Any], partition: TopicPartition) -> pa.RecordBatch:
        arrays = [_column(field, rows, typed, partition) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _column(field: Any, records: pa.RecordBatch, typed: Mapping[str, Any], partition: TopicPartition) -> Any:
    if field.name == "topic":
        return _repeated_text(partition.topic, records.num_rows)
    if field.name == "partition":
        return _repeated_int(partition.partition, records.num_rows)
    column = typed[field.name] if field.name in typed else records.column(field.name)
    if field.name == "timestamp" and column.type == _MILLISECONDS:
        return _microseconds(column)
    return column if column.type == field.type else column.cast(field.type)


# Built from buffers: `pa.repeat` needs a scalar, which loads pandas, a third of a second per worker.


def _microseconds(column: Any) -> Any:
    """Return a column of milliseconds, without nulls, in microseconds; the farthest ones for those out of range.

    Decoding with this unit does the same, so that records from a broker and from files are equal.
    """
    _, data = column.buffers()
    numbers = np.frombuffer(data, np.int64)[column.offset : column.offset + len(column)]
    scaled = np.clip(numbers, -_FARTHEST_MS, _FARTHEST_MS) * UNITS_PER_MS["us"]
    return pa.Array.from_buffers(_MICROSECONDS, len(column), [None, pa.py_buffer(scaled)])


def _repeated_text(text: str, rows: int) -> Any:
    data = text.encode()
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data * rows)])


def _repeated_int(number: int, rows: int) -> Any:
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.full(rows, number, np.int32))])
