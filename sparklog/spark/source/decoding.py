"""Typed keys and values: planned once on the driver, decoded in each task.

The plan has the reader's schema and the versions of the subject, so tasks ask the registry only for schemas that are
newer than the plan. The reader's schema is fixed when a DataFrame is loaded. Fields that writers add later appear after
the next ``load()``, or the next start of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from sparklog.arrow.options import ParseMode
from sparklog.arrow.typed import CORRUPT, DecodingPlan
from sparklog.base.errors import ConfigError, SchemaError
from sparklog.schemas.columns import nullable_within
from sparklog.schemas.formats import AvroFormat, Format, FramedAvroFormat, JsonFormat, StringFormat, type_of
from sparklog.schemas.framing import SchemaId
from sparklog.schemas.json_decoding import check_readable
from sparklog.schemas.protobuf import ProtobufMessage
from sparklog.schemas.protobuf_formats import FramedProtobufFormat, ProtobufFormat
from sparklog.schemas.protobuf_program import type_of_message
from sparklog.schemas.registry import MOST_VERSIONS, Registry, SchemaText, SubjectVersion, UnknownSchema
from sparklog.spark.columns import EVERYTHING, TYPES, check_columns, spark_type
from sparklog.spark.source.ddl import parse_ddl
from sparklog.spark.source.dead_letters import DeadLetterTopic
from sparklog.spark.source.options import ColumnFormat, ConnectionOptions, TypedColumn, TypedOptions
from sparklog.spark.source.protobuf_messages import descriptors, message_of
from sparklog.spark.spark_api import arrow_schema


def typed_schema(raw: StructType, options: TypedOptions) -> StructType:
    """Return the columns of a read: `raw` with typed keys and values. May ask the registry for the types.

    Raises SchemaError, and ConfigError if the column for malformed records has the name of another column.
    """
    return _read_schema(raw, {name: _column_type(column, options) for name, column in options.columns.items()}, options)


def _read_schema(raw: StructType, types: Mapping[str, DataType], options: TypedOptions) -> StructType:
    fields = [StructField(each.name, types.get(each.name, each.dataType)) for each in raw.fields]
    if options.mode is ParseMode.PERMISSIVE:
        fields.append(StructField(options.corrupt_column, spark_type(CORRUPT)))
        if options.corrupt_column in TYPES:
            raise ConfigError(f"columnNameOfCorruptRecord = {options.corrupt_column}: there is a column of that name")
    return StructType(fields)


def plan_decoding(options: TypedOptions, schema: StructType, broker: ConnectionOptions | None) -> DecodingPlan:
    """Return how tasks decode the columns of a read.

    schema: of the read; its types tell from which version of a subject they came
    broker: None for a read of files alone

    Raises SchemaError for schemas that are invalid or do not fit each other. Raises ConfigError for columns that the
    read does not have, and for a topic of dead letters without a broker.
    """
    dead_letters = None
    if options.dead_letter_topic is not None:
        if broker is None:
            raise ConfigError("deadLetterTopic needs kafka.bootstrap.servers: a read of path has no broker to write to")
        dead_letters = DeadLetterTopic(options.dead_letter_topic, broker)
    formats = {name: _column_format(name, column, options, schema) for name, column in options.columns.items()}
    types = {name: spark_type(of.decoder(name).type) for name, of in formats.items()}
    check_columns(schema, _read_schema(EVERYTHING, types, options))
    return DecodingPlan(formats, options.mode, options.corrupt_column, dead_letters)


def _column_type(column: TypedColumn, options: TypedOptions) -> DataType:
    if column.format is ColumnFormat.STRING:
        return spark_type(pa.string())
    if column.format is ColumnFormat.JSON:
        return spark_type(_json_type(column))
    if column.format is ColumnFormat.PROTOBUF:
        message = _given_message(column) or message_of(_latest_schema(column, options), column.message_name)
        return spark_type(type_of_message(message, options.protobuf))
    return spark_type(type_of(_given_schema(column) or _latest_schema(column, options)))


def _column_format(name: str, column: TypedColumn, options: TypedOptions, schema: StructType) -> Format:
    if column.format is ColumnFormat.STRING:
        return StringFormat()
    if column.format is ColumnFormat.JSON:
        return JsonFormat(_json_type(column))
    if column.format is ColumnFormat.PROTOBUF:
        return _protobuf_format(name, column, options, schema)
    reader = _given_schema(column)
    if column.schema is not None:
        assert reader is not None  # by default the writer's
        return AvroFormat(writer=SchemaText("AVRO", column.schema), reader=reader)
    assert options.registry is not None  # typed_options makes sure
    versions = _subject_versions(_registry_client(column, options), column)
    if reader is None:
        reader = _matching_version(name, column, versions, schema, type_of)
    writers: dict[SchemaId, SchemaText] = {each: version.schema for version in versions for each in version.ids}
    return FramedAvroFormat(reader=reader, writers=writers, registry=options.registry)


def _protobuf_format(name: str, column: TypedColumn, options: TypedOptions, schema: StructType) -> Format:
    message = _given_message(column)
    if column.schema is not None:
        assert message is not None  # the schema has it
        return ProtobufFormat(message=message, options=options.protobuf)
    assert options.registry is not None  # typed_options makes sure
    versions = _subject_versions(_registry_client(column, options), column)
    if message is None:
        read = partial(_message_type, column=column, options=options)
        message = message_of(_matching_version(name, column, versions, schema, read), column.message_name)
    names = descriptors().message_names
    writers = {
        each: names(version.schema.text)
        for version in versions
        if version.schema.kind == "PROTOBUF"
        for each in version.ids
    }
    return FramedProtobufFormat(message=message, options=options.protobuf, writers=writers, registry=options.registry)


def _message_type(schema: SchemaText, column: TypedColumn, options: TypedOptions) -> pa.DataType:
    return type_of_message(message_of(schema, column.message_name), options.protobuf)


def _given_message(column: TypedColumn) -> ProtobufMessage | None:
    """Return the message of the schema in the options; None if they have no schema."""
    text = column.reader_schema if column.reader_schema is not None else column.schema
    if text is None:
        return None
    message: ProtobufMessage = descriptors().from_text(text).message(column.message_name)
    return message


def _json_type(column: TypedColumn) -> pa.DataType:
    assert column.schema is not None  # typed_options makes sure
    parsed = arrow_schema(StructType([StructField("value", parse_ddl(column.schema))]))
    of = nullable_within(parsed.field("value").type)  # as in Spark's `from_json`, any field may be missing
    check_readable(of)
    return of


def _subject_versions(registry: Registry, column: TypedColumn) -> list[SubjectVersion]:
    if column.subject is None:
        return []
    try:
        return registry.versions(column.subject, MOST_VERSIONS)
    except UnknownSchema:
        if column.reader_schema is None:
            raise
        return []


def _matching_version(
    name: str,
    column: TypedColumn,
    versions: Sequence[SubjectVersion],
    schema: StructType,
    read: Callable[[SchemaText], pa.DataType],
) -> SchemaText:
    """Return the newest version of the subject that has the column's type; `read` returns the type of a version."""
    if name not in schema.fieldNames():
        return versions[-1].schema
    wanted = schema[name].dataType.simpleString()
    for version in reversed(versions):
        try:
            if spark_type(read(version.schema)).simpleString() == wanted:
                return version.schema
        except SchemaError:
            continue
    raise SchemaError(
        f"no version of subject {column.subject} has the type of column {name}, {wanted}: load() again, or give "
        f"{name}ReaderSchema"
    )


def _given_schema(column: TypedColumn) -> SchemaText | None:
    text = column.reader_schema if column.reader_schema is not None else column.schema
    return None if text is None else SchemaText("AVRO", text)


def _latest_schema(column: TypedColumn, options: TypedOptions) -> SchemaText:
    assert column.subject is not None  # typed_options makes sure
    return _registry_client(column, options).version(column.subject).schema


def _registry_client(column: TypedColumn, options: TypedOptions) -> Registry:
    assert options.registry is not None  # typed_options makes sure
    return Registry(options.registry, serialized=column.format is ColumnFormat.PROTOBUF)
