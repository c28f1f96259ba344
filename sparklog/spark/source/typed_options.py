"""Parser of the options that say how keys and values are encoded.

    format      valueFormat, keyFormat                       raw, string, json, avro or protobuf
    schemas     valueSchema, keySchema                       the writer's, of bodies without a frame; or that of JSON
    (reads)     valueReaderSchema, keyReaderSchema           the reader's; the default is the writer's, or the latest
                valueSubject, keySubject                     of the latest; the default is <topic>-value, -key
                valueMessageName, keyMessageName             of Protobuf; the default is the only one of the schema
    Protobuf    emit.default.values, enums.as.ints, upcast.unsigned.ints, unwrap.primitive.wrapper.types: as of Spark's
    (reads)     from_protobuf
    schemas     valueSchema, keySchema                       the default is that of the column's type
    (writes)    valueSubject, keySubject                     as for reads
                auto.register.schemas, use.latest.version    which schema of the subject, as of Confluent's serializers
                valueSchemaId, keySchemaId                   the number of the schema
                schema.id.serializer                         whether a prefix or a header names the schema
    registry    schema.registry.url, schema.registry.basic.auth.user.info, schema.registry.bearer.auth.token,
                schema.registry.ssl.truststore.location, schema.registry.ssl.keystore.location
    mistakes    mode, columnNameOfCorruptRecord, deadLetterTopic (reads)

An option without effect is refused: its user meant something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparklog.arrow.options import CORRUPT_RECORD, ParseMode
from sparklog.base.errors import ConfigError
from sparklog.schemas.protobuf import ProtobufReadOptions
from sparklog.schemas.registry_options import RegistryOptions
from sparklog.spark.source.options import (
    Assign,
    ColumnFormat,
    EncodedColumn,
    EncodingOptions,
    SchemaChoice,
    Selection,
    Subscribe,
    SubscribePattern,
    TypedColumn,
    TypedOptions,
)

COLUMNS = ("value", "key")
COLUMN_OPTION_SUFFIXES = ("Format", "Schema", "ReaderSchema", "Subject", "MessageName")
BINARY_FORMATS = (ColumnFormat.AVRO, ColumnFormat.PROTOBUF)
"""Formats whose bodies need a schema; a registry may have it."""
REGISTRY_KEYS = (
    "url",
    "basic.auth.user.info",
    "bearer.auth.token",
    "ssl.truststore.location",
    "ssl.keystore.location",
)
REGISTRY_NAMES = tuple(f"schema.registry.{key}" for key in REGISTRY_KEYS)
PROTOBUF_OPTIONS = ("emit.default.values", "enums.as.ints", "upcast.unsigned.ints", "unwrap.primitive.wrapper.types")
TYPED_OPTION_NAMES = (
    *(f"{column}{part}" for column in COLUMNS for part in COLUMN_OPTION_SUFFIXES),
    *REGISTRY_NAMES,
    *PROTOBUF_OPTIONS,
)
REGISTRATION_OPTIONS = ("auto.register.schemas", "use.latest.version")
ID_SERIALIZER = "schema.id.serializer"
SCHEMA_FORMATS = (*BINARY_FORMATS, ColumnFormat.JSON)
"""Formats of writes whose records can name a schema in a registry."""
MALFORMED_OPTIONS = ("mode", "columnNameOfCorruptRecord", "deadLetterTopic")


def typed_options(given: Mapping[str, Any], selection: Selection) -> TypedOptions | None:
    """Return how keys and values are read; None: as bytes.

    given: parsed values by the names of options in lower case
    Raises ConfigError for options that contradict each other.
    """
    columns = {name: _read_column(name, given, selection) for name in COLUMNS}
    typed = {name: column for name, column in columns.items() if column.format is not ColumnFormat.RAW}
    uses_registry = any(column.format in BINARY_FORMATS and column.schema is None for column in typed.values())
    if not uses_registry:
        _refuse_options(
            given,
            REGISTRY_NAMES,
            "has a meaning only with valueFormat or keyFormat = avro or protobuf, without a schema",
        )
    if not any(column.format is ColumnFormat.PROTOBUF for column in typed.values()):
        _refuse_options(given, PROTOBUF_OPTIONS, "has a meaning only with valueFormat or keyFormat = protobuf")
    if not typed:
        _refuse_options(given, MALFORMED_OPTIONS, "has a meaning only with valueFormat or keyFormat")
        return None
    mode = given.get("mode", ParseMode.FAILFAST)
    if mode is not ParseMode.PERMISSIVE:
        _refuse_options(given, MALFORMED_OPTIONS[1:2], "has a meaning only with mode = PERMISSIVE")
    if mode is ParseMode.FAILFAST:
        _refuse_options(given, MALFORMED_OPTIONS[2:], "has a meaning only with mode = PERMISSIVE or DROPMALFORMED")
    return TypedOptions(
        columns=typed,
        mode=mode,
        corrupt_column=given.get("columnnameofcorruptrecord", CORRUPT_RECORD),
        registry=_registry_options(given) if uses_registry else None,
        dead_letter_topic=_dead_letter_topic(given, selection),
        protobuf=ProtobufReadOptions(**{name.replace(".", "_"): given.get(name, False) for name in PROTOBUF_OPTIONS}),
    )


def _dead_letter_topic(given: Mapping[str, Any], selection: Selection) -> str | None:
    topic: str | None = given.get("deadlettertopic")
    if topic is not None and _selects(selection, topic):
        raise ConfigError(
            f"deadLetterTopic = {topic}: the read itself reads this topic, and would meet its dead letters"
        )
    return topic


def _selects(selection: Selection, topic: str) -> bool:
    match selection:
        case Subscribe(names):
            return topic in names
        case SubscribePattern():
            return selection.matches(topic)
        case Assign(partitions):
            return topic in {each.topic for each in partitions}
    return False


def _read_column(name: str, given: Mapping[str, Any], selection: Selection) -> TypedColumn:
    found = {part: given.get(f"{name}{part}".lower()) for part in COLUMN_OPTION_SUFFIXES}
    of = found["Format"] or ColumnFormat.RAW
    if of is ColumnFormat.JSON and found["Schema"] is None:
        raise ConfigError(f"{name}Format = json needs {name}Schema, such as: id bigint, name string")
    if of is not ColumnFormat.PROTOBUF:
        _refuse_options(given, [f"{name}MessageName"], f"has a meaning only with {name}Format = protobuf")
    if of not in BINARY_FORMATS:
        without = COLUMN_OPTION_SUFFIXES[2:4] if of is ColumnFormat.JSON else COLUMN_OPTION_SUFFIXES[1:4]
        _refuse_options(
            given, [f"{name}{part}" for part in without], f"has a meaning only with {name}Format = avro or protobuf"
        )
    elif found["Schema"] is not None:
        _refuse_options(given, [f"{name}Subject"], f"contradicts {name}Schema, which is for bodies without a frame")
    elif "schema.registry.url" not in given:
        raise ConfigError(
            f"{name}Format = {of} needs schema.registry.url, or {name}Schema if the {name}s are bare, without the id "
            "of a schema before them"
        )
    subject = found["Subject"] or _default_subject(name, selection)
    if of is ColumnFormat.PROTOBUF and found["Schema"] is not None:
        _refuse_options(
            given, [f"{name}ReaderSchema"], f"contradicts {name}Schema, which is all that Protobuf needs to read"
        )
    if of in BINARY_FORMATS and found["Schema"] is None and not subject and found["ReaderSchema"] is None:
        raise ConfigError(
            f"{name}Subject or {name}ReaderSchema is missing: the default subject is TOPIC-{name}, and the read may "
            "have several topics"
        )
    return TypedColumn(
        format=of,
        schema=found["Schema"],
        reader_schema=found["ReaderSchema"],
        subject=subject,
        message_name=found["MessageName"],
    )


def encoding_options(given: Mapping[str, Any]) -> EncodingOptions | None:
    """Return how keys and values are written; None: as texts or bytes.

    given: parsed values by the names of options in lower case
    Raises ConfigError for options that contradict each other.
    """
    columns = {name: _write_column(name, given) for name in COLUMNS}
    typed = {name: column for name, column in columns.items() if column.format is not ColumnFormat.RAW}
    of_registry = (*REGISTRY_NAMES, *REGISTRATION_OPTIONS, ID_SERIALIZER)
    if not any(column.format in SCHEMA_FORMATS for column in typed.values()):
        _refuse_options(given, of_registry, "has a meaning only with valueFormat or keyFormat = avro, protobuf or json")
    uses_registry = "schema.registry.url" in given
    if not uses_registry:
        _refuse_options(given, of_registry, "needs schema.registry.url")
    in_headers = given.get(ID_SERIALIZER, False)
    if in_headers and not given.get("includeheaders", True):
        raise ConfigError(f"{ID_SERIALIZER} = header and includeHeaders = false contradict each other")
    latest = given.get("use.latest.version", False)
    register = given.get("auto.register.schemas", not latest)
    if latest and register:
        raise ConfigError("use.latest.version = true and auto.register.schemas = true contradict each other")
    choice = SchemaChoice.LATEST if latest else SchemaChoice.REGISTER if register else SchemaChoice.KNOWN
    for name, column in typed.items():
        if column.schema is not None and latest:
            raise ConfigError(f"use.latest.version contradicts {name}Schema: leave one of them")
    registry = _registry_options(given) if uses_registry else None
    if not typed:
        return None
    return EncodingOptions(columns=typed, registry=registry, choice=choice, ids_in_headers=in_headers)


def _write_column(name: str, given: Mapping[str, Any]) -> EncodedColumn:
    of = given.get(f"{name}format", ColumnFormat.RAW)
    schema, number = given.get(f"{name}schema"), given.get(f"{name}schemaid")
    of_registry = (f"{name}Subject", f"{name}SchemaId")
    message = given.get(f"{name}messagename")
    if of is ColumnFormat.PROTOBUF:
        latest = given.get("use.latest.version", False)
        if schema is None and number is None and not latest:
            raise ConfigError(
                f"{name}Format = protobuf needs {name}Schema, or with schema.registry.url {name}SchemaId or "
                "use.latest.version: a column does not say the numbers of fields"
            )
    else:
        _refuse_options(given, [f"{name}MessageName"], f"has a meaning only with {name}Format = protobuf")
    if of not in SCHEMA_FORMATS:
        _refuse_options(
            given, (f"{name}Schema", *of_registry), f"has a meaning only with {name}Format = avro, protobuf or json"
        )
        return EncodedColumn(format=of, schema=None, subject=None, schema_id=None)
    if "schema.registry.url" not in given:
        _refuse_options(given, of_registry, "needs schema.registry.url")
        if of is ColumnFormat.JSON:
            _refuse_options(
                given, (f"{name}Schema",), "of a write with json is a JSON Schema, which needs schema.registry.url"
            )
        return EncodedColumn(format=of, schema=schema, subject=None, schema_id=None, message_name=message)
    if number is not None:
        _refuse_options(
            given, (f"{name}Schema", f"{name}Subject"), f"contradicts {name}SchemaId, which names the schema"
        )
    topic = given.get("topic")
    subject = given.get(f"{name}subject") or (f"{topic}-{name}" if topic is not None else None)
    if subject is None and number is None:
        raise ConfigError(
            f"{name}Subject is missing: the default subject is TOPIC-{name}, and the rows may have several topics"
        )
    return EncodedColumn(format=of, schema=schema, subject=subject, schema_id=number, message_name=message)


def _default_subject(name: str, selection: Selection) -> str | None:
    topics: set[str] = set()
    if isinstance(selection, Subscribe):
        topics = set(selection.names)
    elif isinstance(selection, Assign):
        topics = {partition.topic for partition in selection.partitions}
    return f"{topics.pop()}-{name}" if len(topics) == 1 else None


def _registry_options(given: Mapping[str, Any]) -> RegistryOptions:
    urls, user_info, token, truststore, keystore = (given.get(name) for name in REGISTRY_NAMES)
    if user_info is not None and token is not None:
        raise ConfigError(f"{REGISTRY_NAMES[1]} and {REGISTRY_NAMES[2]} contradict each other")
    return RegistryOptions(urls=urls or (), user_info=user_info, token=token, truststore=truststore, keystore=keystore)


def _refuse_options(given: Mapping[str, Any], names: Any, why: str) -> None:
    for name in names:
        if name.lower() in given:
            raise ConfigError(f"option {name} {why}")
