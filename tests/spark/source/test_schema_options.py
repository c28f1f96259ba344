"""Options of typed keys and values: what they mean together, and what contradicts."""

from __future__ import annotations

import pickle

import pytest

from sparklog.arrow.options import Mode
from sparklog.base.errors import ConfigError
from sparklog.schemas.registry_options import RegistryOptions
from sparklog.spark.source.option_parsing import Use, parse_read_options, parse_typed_options, parse_write_options
from sparklog.spark.source.options import ColumnFormat, TypedColumn, TypedOptions

REGISTRY = {"schema.registry.url": "http://a:8081, https://b:8081"}


def test_nothing_is_typed_unless_asked_for():
    assert parse_typed_options({"subscribe": "t", "includeHeaders": "true"}) is None
    assert parse_typed_options({"subscribe": "t", "valueFormat": "RAW", "keyFormat": "raw"}) is None


def test_values_of_a_registry():
    found = parse_typed_options({**REGISTRY, "subscribe": "t", "VALUEFORMAT": "Avro", "mode": "permissive"})
    assert found == TypedOptions(
        columns={"value": TypedColumn(format=ColumnFormat.AVRO, schema=None, reader_schema=None, subject="t-value")},
        mode=Mode.PERMISSIVE,
        corrupt_column="_corrupt_record",
        registry=RegistryOptions(urls=("http://a:8081", "https://b:8081")),
    )
    assert pickle.loads(pickle.dumps(found)) == found


def test_keys_and_values_may_differ():
    found = parse_typed_options(
        {"assign": '{"t": [0, 1]}', "valueFormat": "string", "keyFormat": "avro", "keySchema": "long"}
    )
    assert {name: column.format for name, column in found.columns.items()} == {"value": "string", "key": "avro"}
    assert (found.columns["key"].schema, found.registry, found.mode) == ("long", None, Mode.FAILFAST)


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
        ({"valueFormat": "xml"}, "it must be raw, string, json or avro"),
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
            "schema.registry.url has a meaning only with valueFormat or keyFormat = avro, without a schema",
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


def test_a_read_takes_these_options_and_a_write_does_not():
    options = {"path": "/logs", "valueFormat": "avro", "valueSchema": "long"}
    assert parse_read_options(options, Use.STREAM).decoding is None
    with pytest.raises(ConfigError, match="valueFormat has no meaning for a write"):
        parse_write_options({"bootstrap.servers": "a:1", "valueFormat": "avro"})
