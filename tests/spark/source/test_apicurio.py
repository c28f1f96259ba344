"""Typed reads and writes with a registry that others have written, and with Confluent's serializers as the judges."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from sparklog.base.errors import RegistryError
from sparklog.schemas.registry import Registry, SchemaText
from sparklog.schemas.registry_options import RegistryOptions
from support.schemas.apicurio import apicurio_registry
from support.schemas.protobuf import classes, compiled
from support.spark_topics import Topics

pytestmark = pytest.mark.slow

ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "int"}]}
NEWER = {
    **ORDER,
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
MESSAGE = 'syntax = "proto3"; package shop; message Order { int64 id = 1; optional string note = 2; }'
JSON_SCHEMA = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio_registry(tmp_path_factory.mktemp("apicurio")) as running:
        yield running


@pytest.fixture
def client(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url})


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def fill(topics: Topics, bodies: Callable[[str], list[bytes | None]]) -> str:
    """Return a new topic with these values."""
    topic = topics.create()
    values = bodies(topic)
    topics.fill(topic, len(values), value=pa.array(values, pa.binary()))
    return topic


def values(read: Any, topic: str, **options: str) -> list[dict[str, Any] | None]:
    rows = read(topic, **options).orderBy("offset").select("value").collect()
    return [row.value and row.value.asDict() for row in rows]


def test_avro_of_confluents_serializer_is_read_in_the_newest_schema(
    read: Any, topics: Topics, url: str, client: SchemaRegistryClient
) -> None:
    def bodies(topic: str) -> list[bytes | None]:
        old, new = (AvroSerializer(client, json.dumps(schema)) for schema in (ORDER, NEWER))
        return [old({"id": 1}, context(topic)), new({"id": 2**40, "note": "new"}, context(topic)), None]

    found = values(read, fill(topics, bodies), valueFormat="avro", **{"schema.registry.url": url})
    assert found == [{"id": 1, "note": None}, {"id": 2**40, "note": "new"}, None]


def test_protobuf_of_confluents_serializer_is_read(
    read: Any, topics: Topics, url: str, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    order = classes(compiled(MESSAGE, tmp_path))["shop.Order"]

    def bodies(topic: str) -> list[bytes | None]:
        serialize = ProtobufSerializer(order, client, {"use.deprecated.format": False})
        return [serialize(order(id=number, note=note), context(topic)) for number, note in ((1, None), (2, "x"))]

    found = values(read, fill(topics, bodies), valueFormat="protobuf", **{"schema.registry.url": url})
    assert found == [{"id": 1, "note": None}, {"id": 2, "note": "x"}]


def test_json_of_confluents_serializer_is_read(read: Any, topics: Topics, client: SchemaRegistryClient) -> None:
    def bodies(topic: str) -> list[bytes | None]:
        return [JSONSerializer(json.dumps(JSON_SCHEMA), client)({"id": 7}, context(topic))]

    topic = fill(topics, bodies)
    assert values(read, topic, valueFormat="json", valueSchema="id bigint") == [{"id": 7}]


@pytest.mark.parametrize("written", ["avro", "protobuf"])
def test_confluents_deserializers_read_what_spark_writes(
    spark: SparkSession, read: Any, topics: Topics, url: str, client: SchemaRegistryClient, tmp_path: Path, written: str
) -> None:
    topic = topics.create()
    frame = spark.sql("SELECT named_struct('id', id, 'note', IF(id = 1, NULL, 'n')) AS value FROM range(3)").coalesce(1)
    options = {"valueFormat": written, "schema.registry.url": url}
    content = compiled(MESSAGE, tmp_path)
    if written == "protobuf":
        (tmp_path / "order.desc").write_bytes(content)
        options |= {"valueSchema": str(tmp_path / "order.desc"), "valueMessageName": "Order"}
    writer = frame.write.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
    writer.option("topic", topic).options(**options).mode("append").save()

    bodies = [bytes(row.value) for row in read(topic).orderBy("offset").collect()]
    wanted = [row.value.asDict() for row in frame.collect()]
    if written == "avro":
        assert [AvroDeserializer(client)(body, context(topic)) for body in bodies] == wanted
    else:
        of = ProtobufDeserializer(classes(content)["shop.Order"], {"use.deprecated.format": False}, client)
        found = [of(body, context(topic)) for body in bodies]
        assert [{"id": each.id, "note": each.note if each.HasField("note") else None} for each in found] == wanted
    assert values(read, topic, valueFormat=written, **{"schema.registry.url": url}) == wanted


def test_what_the_registry_refuses_is_told_in_its_words(url: str) -> None:
    registry = Registry(RegistryOptions(urls=(url,)))
    with pytest.raises(RegistryError, match="has no subject nobodys-value"):
        registry.version("nobodys-value")
    with pytest.raises(RegistryError, match="bad-value"):
        registry.register("bad-value", SchemaText("AVRO", '{"type": "record"}'))
