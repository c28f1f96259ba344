"""The columns of a topic as a table: those of Spark's Kafka source, with the same types.

    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int
    headers array<struct<key: string, value: binary>>       with includeHeaders

All are nullable, as in Kafka's source. Spark does not tell a Python source which columns a query uses, so a reader that
needs only a few names them: ``spark.read.format("sparklog").schema("key binary, offset bigint")``. Columns that are not
named are not decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition

if TYPE_CHECKING:
    from sparklog.spark.source.decoding import Decoding

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


EVERYTHING = table_schema(include_headers=True)


_SPARK_TYPES: dict[Any, DataType] = {
    pa.null(): NullType(),
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.date32(): DateType(),
    pa.timestamp("us", "UTC"): TimestampType(),
    pa.timestamp("us"): TimestampNTZType(),
}


def spark_type(of: Any) -> DataType:
    """Return Spark's type for an Arrow type, with the same nullability within: pyspark's own function loses that."""
    if pa.types.is_struct(of):
        return StructType([StructField(each.name, spark_type(each.type), each.nullable) for each in of])
    if pa.types.is_map(of):
        return MapType(spark_type(of.key_type), spark_type(of.item_type), of.item_field.nullable)
    if pa.types.is_list(of):
        return ArrayType(spark_type(of.value_type), of.value_field.nullable)
    if pa.types.is_decimal(of):
        return DecimalType(of.precision, of.scale)
    return _SPARK_TYPES[of]


def check_columns(schema: StructType, table: StructType = EVERYTHING) -> None:
    """Raise ConfigError unless every requested column exists in the table and has the right type."""
    types = {field.name: field.dataType for field in table.fields}
    for field in schema.fields:
        expected = types.get(field.name)
        if expected is None or expected.simpleString() != field.dataType.simpleString():
            known = ", ".join(f"{name} {of.simpleString()}" for name, of in types.items())
            raise ConfigError(f"no column {field.name} {field.dataType.simpleString()} in a topic; there are: {known}")


class TableShape:
    """Converter of record batches to the requested columns.

    decoding: how to decode keys and values; None: they stay bytes
    """

    def __init__(self, schema: StructType, decoding: Decoding | None = None) -> None:
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        names = schema.fieldNames() if decoding is None else decoding.needs(schema.fieldNames())
        self.decoded = tuple(name for name in names if name not in OF_PARTITION)
        """Columns to decode; never empty, as the number of rows comes from them."""
        if not self.decoded:
            self.decoded = ("offset",)
        self._typed = None if decoding is None else decoding.start(schema.fieldNames())

    def apply(self, batches: Iterator[pa.RecordBatch], partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        """Yield records of one partition as Spark expects them; `batches` have at least the columns `decoded`."""
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
        arrays = [_column(field, rows, typed, partition) for field in self.arrow_schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)


def _column(field: Any, records: pa.RecordBatch, typed: Mapping[str, Any], partition: TopicPartition) -> Any:
    if field.name == "topic":
        return _repeated_text(partition.topic, records.num_rows)
    if field.name == "partition":
        return _repeated_int(partition.partition, records.num_rows)
    column = typed[field.name] if field.name in typed else records.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


# Built from buffers, not with `pa.repeat`: a scalar of a Python value loads pandas, a third of a second per worker.


def _repeated_text(text: str, rows: int) -> Any:
    data = text.encode()
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data * rows)])


def _repeated_int(number: int, rows: int) -> Any:
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.full(rows, number, np.int32))])
