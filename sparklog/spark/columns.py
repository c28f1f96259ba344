"""The columns of a topic as a table: those of Spark's Kafka source, with the same types.

    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int
    headers array<struct<key: string, value: binary>>       with includeHeaders

All are nullable, as in Kafka's source. Spark does not tell a Python source which columns a query uses, so a reader that
needs only a few names them: ``spark.read.format("sparklog").schema("key binary, offset bigint")``. Columns that are not
named are not decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
OF_PARTITION = ("topic", "partition")
MOST_ROWS = 1 << 20
"""Most rows of one record batch: its topic column must stay below the 2 GiB of Arrow's strings, for any topic name."""


def table_schema(*, include_headers: bool) -> StructType:
    """Return the schema of a read that names no columns."""
    return StructType([StructField(name, of) for name, of in TYPES.items() if include_headers or name != "headers"])


def check_columns(schema: StructType) -> None:
    """Raise ConfigError unless every requested column exists and has the right type."""
    for field in schema.fields:
        expected = TYPES.get(field.name)
        if expected is None or expected.simpleString() != field.dataType.simpleString():
            known = ", ".join(f"{name} {of.simpleString()}" for name, of in TYPES.items())
            raise ConfigError(f"no column {field.name} {field.dataType.simpleString()} in a topic; there are: {known}")


class TableShape:
    """Converter of record batches to the requested columns."""

    def __init__(self, schema: StructType) -> None:
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self.decoded = tuple(name for name in schema.fieldNames() if name not in OF_PARTITION)
        """Columns to decode; never empty, as the number of rows comes from them."""
        if not self.decoded:
            self.decoded = ("offset",)

    def apply(self, batches: Iterator[pa.RecordBatch], partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        """Yield records of one partition as Spark expects them; `batches` have at least the columns `decoded`."""
        for records in batches:
            for first in range(0, records.num_rows, MOST_ROWS):
                rows = records.slice(first, MOST_ROWS)
                arrays = [_column(field, rows, partition) for field in self.arrow_schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)


def _column(field: Any, records: pa.RecordBatch, partition: TopicPartition) -> Any:
    if field.name == "topic":
        return _repeated_text(partition.topic, records.num_rows)
    if field.name == "partition":
        return _repeated_int(partition.partition, records.num_rows)
    column = records.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


# Built from buffers, not with `pa.repeat`: a scalar of a Python value loads pandas, a third of a second per worker.


def _repeated_text(text: str, rows: int) -> Any:
    data = text.encode()
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data * rows)])


def _repeated_int(number: int, rows: int) -> Any:
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.full(rows, number, np.int32))])
