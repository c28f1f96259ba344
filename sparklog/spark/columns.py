"""The columns of a topic as a table: those of Spark's Kafka source, with the same types.

    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int
    headers array<struct<key: string, value: binary>>       with includeHeaders

All are nullable, as in Kafka's source. Spark does not tell a Python source which columns a query uses. A query that
needs only a few names them: ``spark.read.format("sparklog").schema("key binary, offset bigint")``. Other columns are
not decoded then.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
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
    pa.duration("us"): DayTimeIntervalType(),
}


def spark_type(of: Any) -> DataType:
    """Return Spark's type for an Arrow type. Keeps the nullability of parts, which pyspark's own function loses."""
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
