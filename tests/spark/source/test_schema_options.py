"""Options of typed keys and values: valid combinations and contradictions."""

from __future__ import annotations

import pickle

import pytest

from sparklog.arrow.options import ParseMode
from sparklog.base.errors import ConfigError
from sparklog.schemas.protobuf import ProtobufReadOptions
from sparklog.schemas.registry_options import RegistryOptions
from sparklog.spark.source.option_parsing import parse_read_options, parse_typed_options, parse_write_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.options import (
    ColumnFormat,
    EncodedColumn,
    EncodingOptions,
    SchemaChoice,
    TypedColumn,
    TypedOptions,
)  # fmt: skip

REGISTRY = {"schema.registry.url": "http://a:8081, https://b:8081"}


def test_nothing_is_typed_unless_asked_for():
    assert parse_typed_options({"subscribe": "t", "includeHeaders": "true"}) is None
    assert parse_typed_options({"subscribe": "t", "valueFormat": "RAW", "keyFormat": "raw"}) is None


def test_values_of_a_registry():
    found = parse_typed_options({**REGISTRY, "subscribe": "t", "VALUEFORMAT": "Avro", "mode": "permissive"})
    assert found == TypedOptions(
        columns={"value": TypedColumn(format=ColumnFormat.AVRO, schema=None, reader_schema=None, subject="t-value")},
        mode=ParseMode.PERMISSIVE,
        corrupt_column="_corrupt_record",
        registry=RegistryOptions(urls=("http://a:8081", "https://b:8081")),
        protobuf=ProtobufReadOptions(),
    )
    assert pickle.loads(pickle.dumps(found)) == found


def test_protobuf_has_the_options_of_from_protobuf():
    found = parse_typed_options(
        {
            "subscribe": "t",
            "valueFormat": "protobuf",
            "valueSchema": "orders.desc",
            "valueMessageName": "shop.Order",
            "Enums.As.Ints": "true",
        }
    )
    assert found.protobuf == ProtobufReadOptions(enums_as_ints=True)
    assert (found.columns["value"].message_name, found.registry) == ("shop.Order", None)


def test_keys_and_values_may_differ():
    found = parse_typed_options(
        {"assign": '{"t": [0, 1]}', "valueFormat": "string", "keyFormat": "avro", "keySchema": "long"}
    )
    assert {name: column.format for name, column in found.columns.items()} == {"value": "string", "key": "avro"}
    assert (found.columns["key"].schema, found.registry, found.mode) == ("long", None, ParseMode.FAILFAST)


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({"subscribe": "t"}, "t-value"),
        ({"assign": '{"t": [0, 3]}'}, "t-value"),
        ({"subscribe": "a,b", "valueSubject": "shop.Order"}, "shop.Order"),
        ({"subscribe": "a,b", "valueReaderSchema": "long"}, None),
    ],
)
def test_the_subject_is_that_of_the_topic_unless_named(options, subject):
    assert parse_typed_options({**REGISTRY, "valueFormat": "avro", **options}).columns["value"].subject == subject


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"valueFormat": "avro"},
            "valueFormat = avro needs schema.registry.url, or valueSchema if the values are bare",
        ),
        ({"valueFormat": "xml"}, "it must be raw, string, json, avro or protobuf"),
        ({"valueFormat": "json"}, "valueFormat = json needs valueSchema, such as: id bigint, name string"),
        (
            {"valueFormat": "json", "valueSchema": "a int", "valueSubject": "s"},
            "valueSubject has a meaning only with valueFormat = avro",
        ),
        ({"valueFormat": "string", "valueSchema": "long"}, "valueSchema has a meaning only with valueFormat = avro"),
        ({"keySubject": "s"}, "keySubject has a meaning only with keyFormat = avro"),
        (
            {"valueFormat": "avro", "valueSchema": "long", "valueSubject": "s"},
            "valueSubject contradicts valueSchema, which is for bodies without a frame",
        ),
        (
            {"valueFormat": "avro", "valueSchema": "long", **REGISTRY},
            "schema.registry.url has a meaning only with valueFormat or keyFormat = avro or protobuf, without a schema",
        ),
        ({"valueFormat": "protobuf"}, "valueFormat = protobuf needs schema.registry.url, or valueSchema"),
        (
            {"valueFormat": "protobuf", "valueSchema": "a.desc", "valueReaderSchema": "b.desc"},
            "valueReaderSchema contradicts valueSchema",
        ),
        (
            {"valueFormat": "avro", "valueMessageName": "M"},
            "valueMessageName has a meaning only with valueFormat = prot",
        ),
        (
            {"valueFormat": "string", "enums.as.ints": "true"},
            "enums.as.ints has a meaning only with valueFormat or key",
        ),
        ({"valueFormat": "avro", "subscribe": "a,b", **REGISTRY}, "valueSubject or valueReaderSchema is missing"),
        ({"valueFormat": "avro", "subscribePattern": "a", **REGISTRY}, "valueSubject or valueReaderSchema is missing"),
        ({"mode": "PERMISSIVE"}, "mode has a meaning only with valueFormat or keyFormat"),
        ({"valueFormat": "string", "mode": "lenient"}, "it must be FAILFAST, PERMISSIVE or DROPMALFORMED"),
        (
            {"valueFormat": "string", "columnNameOfCorruptRecord": "bad"},
            "columnNameOfCorruptRecord has a meaning only with mode = PERMISSIVE",
        ),
        ({"schema.registry.url": "localhost:8081"}, "it must be http or https URLs"),
        (
            {
                "valueFormat": "avro",
                **REGISTRY,
                "schema.registry.basic.auth.user.info": "a:b",
                "schema.registry.bearer.auth.token": "t",
            },
            "contradict each other",
        ),
    ],
)
def test_what_contradicts_is_refused(options, said):
    selected = {} if "subscribePattern" in options else {"subscribe": "t"}
    with pytest.raises(ConfigError) as refused:
        parse_typed_options({**selected, **options})
    assert said in str(refused.value)


def test_options_of_reads_mean_nothing_for_a_write_and_the_other_way_round():
    options = {"path": "/logs", "valueFormat": "avro", "valueSchema": "long"}
    assert parse_read_options(options, OptionUse.STREAM).decoding is None
    with pytest.raises(ConfigError, match=r"use\.latest\.version has no meaning for a streaming read"):
        parse_read_options({**options, "use.latest.version": "true"}, OptionUse.STREAM)
    for name in ("mode", "valueReaderSchema"):
        with pytest.raises(ConfigError, match=f"{name} has no meaning for a write"):
            parse_write_options({"bootstrap.servers": "a:1", name: "FAILFAST"})


def written(**options):
    return parse_write_options({"bootstrap.servers": "a:1", **options}).typed


AVRO = {"valueFormat": "avro", **REGISTRY}


@pytest.mark.parametrize(
    ("options", "choice"),
    [
        ({}, SchemaChoice.REGISTER),
        ({"auto.register.schemas": "true"}, SchemaChoice.REGISTER),
        ({"auto.register.schemas": "false"}, SchemaChoice.KNOWN),
        ({"use.latest.version": "true"}, SchemaChoice.LATEST),
        ({"use.latest.version": "true", "auto.register.schemas": "false"}, SchemaChoice.LATEST),
    ],
)
def test_the_schema_that_a_write_chooses(options, choice):
    found = written(topic="t", **AVRO, **options)
    assert found == EncodingOptions(
        columns={
            "value": EncodedColumn(format=ColumnFormat.AVRO, schema=None, subject="t-value", schema_id=None),
        },
        registry=RegistryOptions(urls=("http://a:8081", "https://b:8081")),
        choice=choice,
    )


def test_a_write_is_typed_only_if_asked_for():
    assert written(topic="t") is None
    assert written(topic="t", valueFormat="raw") is None
    bare = written(valueFormat="json", keyFormat="avro", keySchema="long")
    assert (bare.registry, bare.columns["key"].schema, bare.columns["key"].subject) == (None, "long", None)
    assert written(**AVRO, valueSchemaId="7").columns["value"].schema_id == 7
    assert written(**AVRO, valueSubject="s").columns["value"].subject == "s"
    assert not written(**AVRO, topic="t").ids_in_headers
    assert written(**AVRO, topic="t", **{"schema.id.serializer": "Header"}).ids_in_headers


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (AVRO, "valueSubject is missing: the default subject is TOPIC-value, and the rows may have several topics"),
        ({"valueFormat": "avro", "valueSubject": "s"}, "option valueSubject needs schema.registry.url"),
        ({"valueFormat": "avro", "auto.register.schemas": "true"}, "auto.register.schemas needs schema.registry.url"),
        (
            {"valueFormat": "json", "valueSchema": "{}"},
            "valueSchema of a write with json is a JSON Schema, which",
        ),
        ({"valueFormat": "string", **REGISTRY}, "schema.registry.url has a meaning only with valueFormat or keyFormat"),
        ({"valueFormat": "json", **REGISTRY}, "valueSubject is missing"),
        ({"valueFormat": "avro", "schema.id.serializer": "header"}, "schema.id.serializer needs schema.registry.url"),
        ({**AVRO, "topic": "t", "schema.id.serializer": "guid"}, "it must be prefix or header"),
        (
            {**AVRO, "topic": "t", "schema.id.serializer": "header", "includeHeaders": "false"},
            "schema.id.serializer = header and includeHeaders = false contradict each other",
        ),
        (
            {"valueFormat": "protobuf", "topic": "t"},
            "valueFormat = protobuf needs valueSchema, or with schema.registry.url valueSchemaId or use.latest.version",
        ),
        ({"valueFormat": "protobuf", "use.latest.version": "true"}, "use.latest.version needs schema.registry.url"),
        (
            {**AVRO, "topic": "t", "valueMessageName": "M"},
            "valueMessageName has a meaning only with valueFormat = prot",
        ),
        ({"valueSchemaId": "7"}, "valueSchemaId has a meaning only with valueFormat = avro"),
        ({**AVRO, "valueSchemaId": "7", "valueSchema": "long"}, "valueSchema contradicts valueSchemaId"),
        ({**AVRO, "topic": "t", "valueSchema": "long", "use.latest.version": "true"}, "contradicts valueSchema"),
        (
            {**AVRO, "topic": "t", "auto.register.schemas": "true", "use.latest.version": "true"},
            "use.latest.version = true and auto.register.schemas = true contradict each other",
        ),
    ],
)
def test_what_contradicts_in_a_write_is_refused(options, said):
    with pytest.raises(ConfigError) as refused:
        written(**options)
    assert said in str(refused.value)
