"""Typed keys and values of a write: planned once on the driver, encoded in each task.

The driver finds the schema and its id before any task runs: it registers the schema, or asks the registry for it, and
checks that the column fits. Tasks get both with the plan, and do not ask the registry. Spark plans each trigger of a
stream anew. Ids of schemas never change, so the driver's process caches them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from sparklog.base.errors import ConfigError, MalformedRecord, SchemaError
from sparklog.records.schema import HEADERS_TYPE
from sparklog.schemas.avro_encoding import derived_schema
from sparklog.schemas.encoding import BadRow
from sparklog.schemas.framing import HEADERS, index_bytes, with_headers
from sparklog.schemas.json_encoding import derived_json_schema
from sparklog.schemas.registry import Registry, SchemaText
from sparklog.schemas.registry_options import RegistryOptions
from sparklog.schemas.write_formats import (
    AvroWriteFormat,
    JsonWriteFormat,
    ProtobufWriteFormat,
    SchemaNaming,
    WriteFormat,
    frame_in_header,
)
from sparklog.spark.source.options import ColumnFormat, EncodedColumn, EncodingOptions, SchemaChoice
from sparklog.spark.source.protobuf_messages import descriptors, message_of
from sparklog.spark.spark_api import arrow_schema


@dataclass(frozen=True, slots=True)
class RowEncoding:
    """How the typed columns of a write are encoded. The plan sends it to tasks."""

    formats: Mapping[str, WriteFormat]

    def start(self, topic: str | None) -> RowEncoder:
        """Return the encoder of one task's rows. `topic`: where they are written; None: the column `topic` names it."""
        return RowEncoder(self, topic)


class RowEncoder:
    """Encodes the rows of a task. Counts them, so that an error names the row."""

    def __init__(self, encoding: RowEncoding, topic: str | None) -> None:
        self._encoders = {name: of.encoder() for name, of in encoding.formats.items()}
        frames = {name: frame_in_header(of.naming) for name, of in encoding.formats.items()}
        self._headers = {name: frame for name, frame in frames.items() if frame is not None}
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
        if self._headers:
            rows = self._with_headers(rows, batch)
        self._done += batch.num_rows
        return rows

    def _with_headers(self, rows: pa.Table, batch: pa.RecordBatch) -> pa.Table:
        """Return the rows with added headers, which name the schemas of keys and values that are not null."""
        own = batch.column("headers") if "headers" in batch.schema.names else pa.nulls(batch.num_rows, HEADERS_TYPE)
        added = {
            HEADERS[name]: (frame, np.asarray(batch.column(name).is_valid())) for name, frame in self._headers.items()
        }
        headers = with_headers(own.cast(HEADERS_TYPE), added)
        if "headers" not in rows.column_names:
            return rows.append_column("headers", headers)
        return rows.set_column(rows.column_names.index("headers"), "headers", headers)


def plan_encoding(options: EncodingOptions, schema: StructType) -> RowEncoding:
    """Return how tasks encode the columns of a write. Registers schemas, or asks the registry for them.

    Raises ConfigError if a column is missing or has no type of its format; SchemaError, with the place and both types,
    if it does not fit its schema; RegistryError if the registry does not have the schema, or refuses it.
    """
    formats = {name: _write_format(name, column, options, schema) for name, column in options.columns.items()}
    return RowEncoding({name: of for name, of in formats.items() if of is not None})


def _write_format(name: str, column: EncodedColumn, options: EncodingOptions, schema: StructType) -> WriteFormat | None:
    if name not in schema.fieldNames():
        raise ConfigError(f"{name}Format = {column.format}: there is no column {name} among {schema.fieldNames()}")
    spark = schema[name].dataType
    if column.format is ColumnFormat.STRING:
        if spark != StringType():
            raise ConfigError(f"{name}Format = string: column {name} is {spark.simpleString()}; cast it to string")
        return None
    of = arrow_schema(StructType([StructField(name, spark)])).field(0).type
    try:
        writing = _WRITINGS[column.format](of, column, options)
        writing.encoder()
    except SchemaError as error:
        raise type(error)(f"column {name}: {error}") from None
    return writing


def _avro_format(of: pa.DataType, column: EncodedColumn, options: EncodingOptions) -> AvroWriteFormat:
    def check(schema: SchemaText) -> None:
        AvroWriteFormat(type=of, schema=schema, naming=None).encoder()

    derive = partial(derived_schema, of)
    if options.registry is None:
        return AvroWriteFormat(type=of, schema=_given_or_derived("AVRO", column, derive), naming=None)
    schema, naming = _choose_schema("AVRO", column, options, options.registry, derive, check)
    return AvroWriteFormat(type=of, schema=schema, naming=naming)


def _json_format(of: pa.DataType, column: EncodedColumn, options: EncodingOptions) -> JsonWriteFormat:
    if options.registry is None:
        return JsonWriteFormat(type=of)

    def check(_: SchemaText) -> None:
        JsonWriteFormat(type=of).encoder()

    _, naming = _choose_schema("JSON", column, options, options.registry, partial(derived_json_schema, of), check)
    return JsonWriteFormat(type=of, naming=naming)


def _protobuf_format(of: pa.DataType, column: EncodedColumn, options: EncodingOptions) -> ProtobufWriteFormat:
    def given() -> Any:
        assert column.schema is not None  # typed_options makes sure
        return descriptors().from_text(column.schema)

    if options.registry is None:
        return ProtobufWriteFormat(type=of, message=given().message(column.message_name))

    def check(_: SchemaText) -> None:
        ProtobufWriteFormat(type=of, message=given().message(column.message_name)).encoder()

    own = column if column.schema is None else replace(column, schema=given().text())
    schema, naming = _choose_schema("PROTOBUF", own, options, options.registry, given, check)
    message = message_of(schema, column.message_name)
    indexes = next(
        (each for each, name in descriptors().message_names(schema.text).items() if name == message.name), None
    )
    if indexes is None:
        raise SchemaError(f"message {message.name} is in a file that the schema imports: write that one's schema")
    return ProtobufWriteFormat(type=of, message=message, naming=replace(naming, indexes=index_bytes(indexes)))


_WRITINGS: Mapping[ColumnFormat, Callable[[pa.DataType, EncodedColumn, EncodingOptions], WriteFormat]] = {
    ColumnFormat.AVRO: _avro_format,
    ColumnFormat.PROTOBUF: _protobuf_format,
    ColumnFormat.JSON: _json_format,
}


def _choose_schema(
    kind: str,
    column: EncodedColumn,
    options: EncodingOptions,
    of: RegistryOptions,
    derive: Callable[[], Any],
    check: Callable[[SchemaText], None],
) -> tuple[SchemaText, SchemaNaming]:
    """Return the schema to write, and how records name it.

    kind: as of `SchemaText`
    derive: returns the schema of the column's type, as JSON values
    check: raises SchemaError for a schema that the column does not fit, which must not be registered
    """
    registry = Registry(of, serialized=kind == "PROTOBUF")
    if column.schema_id is not None:
        schema, number = registry.by_id(column.schema_id), column.schema_id
    elif options.choice is SchemaChoice.LATEST:
        assert column.subject is not None  # typed_options makes sure
        latest = registry.version(column.subject)
        schema, number = latest.schema, next(each for each in latest.ids if isinstance(each, int))
    else:
        schema = _given_or_derived(kind, column, derive)
        check(schema)
        number = _schema_number(schema, column, options, registry, of)
    if schema.kind != kind:
        raise SchemaError(f"the schema is {schema.kind}, not {kind}")
    if not options.ids_in_headers:
        return schema, SchemaNaming(schema_id=number)
    known = _GUIDS.setdefault(of, {})
    if number not in known:
        known[number] = registry.guid(number)
    return schema, SchemaNaming(schema_id=known[number], in_header=True)


def _given_or_derived(kind: str, column: EncodedColumn, derive: Callable[[], Any]) -> SchemaText:
    """Return the schema in the options; without one, that of the column's type."""
    return SchemaText(kind, column.schema if column.schema is not None else json.dumps(derive()))


def _schema_number(
    schema: SchemaText, column: EncodedColumn, options: EncodingOptions, registry: Registry, of: RegistryOptions
) -> int:
    assert column.subject is not None  # typed_options makes sure
    known = _IDS.setdefault(of, {})
    wanted = (column.subject, schema.text, options.choice)
    if wanted not in known:
        ask = registry.register if options.choice is SchemaChoice.REGISTER else registry.lookup
        known[wanted] = ask(column.subject, schema)
    return known[wanted]


_IDS: dict[RegistryOptions, dict[tuple[str, str, SchemaChoice], int]] = {}
"""Ids of schemas that this process has asked for."""
_GUIDS: dict[RegistryOptions, dict[int, UUID]] = {}
"""GUIDs of schemas that this process has asked for, by number."""
