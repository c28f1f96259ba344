"""Typed keys and values of a write: planned once on the driver, encoded in each task.

The driver finds the schema and its id before any task runs: it registers the schema, or asks the registry for it, and
makes sure that the column fits. Tasks get both with the plan and ask nobody. Spark plans each trigger of a stream anew;
ids of schemas do not change, so a process of the driver that has asked for one remembers it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from sparklog.base.errors import ConfigError, MalformedRecord, SchemaError
from sparklog.schemas.avro_encoding import derived_schema
from sparklog.schemas.encoding import BadRow
from sparklog.schemas.registry import Registry, SchemaText
from sparklog.schemas.registry_options import RegistryOptions
from sparklog.schemas.written_formats import AvroWriting, JsonWriting, Writing
from sparklog.spark.source.options import ColumnFormat, SchemaChoice, WrittenColumn, WrittenOptions
from sparklog.spark.spark_api import arrow_schema


@dataclass(frozen=True, slots=True)
class RowEncoding:
    """The typed columns of a write, as its plan brings them to tasks."""

    formats: Mapping[str, Writing]

    def start(self, topic: str | None) -> EncodedRows:
        """Return what encodes the rows of one task, written to this topic, or to that of the column `topic`."""
        return EncodedRows(self, topic)


class EncodedRows:
    """Encodes the rows of a task, and counts them."""

    def __init__(self, encoding: RowEncoding, topic: str | None) -> None:
        self._encoders = {name: of.encoder() for name, of in encoding.formats.items()}
        self._topic = topic
        self._done = 0

    def encode(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the rows with encoded keys and values. Raises MalformedRecord for a row that cannot be encoded."""
        rows = pa.Table.from_batches([batch])
        for name, encoder in self._encoders.items():
            try:
                bodies = encoder.encode(batch.column(name))
            except BadRow as error:
                topic = self._topic if self._topic is not None else batch.column("topic")[error.row].as_py()
                context = TaskContext.get()
                where = f"row {self._done + error.row} of task {context.partitionId() if context else 0}"
                path = f"{name}.{error.path}" if error.path else name
                raise MalformedRecord(f"topic {topic}: {where}: {path}: {error.reason}") from None
            rows = rows.set_column(rows.schema.get_field_index(name), name, bodies)
        self._done += batch.num_rows
        return rows


def plan_encoding(options: WrittenOptions, schema: StructType) -> RowEncoding:
    """Return how tasks encode the columns of a write. Registers schemas, or asks the registry for them.

    Raises ConfigError if a column is missing or has no type of its format; SchemaError, with the place and both types,
    if it does not fit its schema; RegistryError if the registry does not have the schema, or refuses it.
    """
    formats = {name: _writing(name, column, options, schema) for name, column in options.columns.items()}
    return RowEncoding({name: of for name, of in formats.items() if of is not None})


def _writing(name: str, column: WrittenColumn, options: WrittenOptions, schema: StructType) -> Writing | None:
    if name not in schema.fieldNames():
        raise ConfigError(f"{name}Format = {column.format}: there is no column {name} among {schema.fieldNames()}")
    spark = schema[name].dataType
    if column.format is ColumnFormat.STRING:
        if spark != StringType():
            raise ConfigError(f"{name}Format = string: column {name} is {spark.simpleString()}; cast it to string")
        return None
    of = arrow_schema(StructType([StructField(name, spark)])).field(0).type
    try:
        writing = JsonWriting(of) if column.format is ColumnFormat.JSON else _avro(of, column, options)
        writing.encoder()
    except SchemaError as error:
        raise type(error)(f"column {name}: {error}") from None
    return writing


def _avro(of: pa.DataType, column: WrittenColumn, options: WrittenOptions) -> AvroWriting:
    given = None if column.schema is None else SchemaText("AVRO", column.schema)
    if options.registry is None:
        return AvroWriting(type=of, schema=given or _derived(of), schema_id=None)
    registry = Registry(options.registry)
    if column.schema_id is not None:
        return AvroWriting(type=of, schema=registry.by_id(column.schema_id), schema_id=column.schema_id)
    assert column.subject is not None  # typed_options makes sure
    if options.choice is SchemaChoice.LATEST:
        latest = registry.version(column.subject)
        number = next(each for each in latest.ids if isinstance(each, int))
        return AvroWriting(type=of, schema=latest.schema, schema_id=number)
    schema = given or _derived(of)
    AvroWriting(type=of, schema=schema, schema_id=None).encoder()  # what does not fit must not be registered
    known = _IDS.setdefault(options.registry, {})
    wanted = (column.subject, schema.text, options.choice)
    if wanted not in known:
        ask = registry.register if options.choice is SchemaChoice.REGISTER else registry.lookup
        known[wanted] = ask(column.subject, schema)
    return AvroWriting(type=of, schema=schema, schema_id=known[wanted])


_IDS: dict[RegistryOptions, dict[tuple[str, str, SchemaChoice], int]] = {}
"""Ids that this process has asked for."""


def _derived(of: pa.DataType) -> SchemaText:
    return SchemaText("AVRO", json.dumps(derived_schema(of)))
