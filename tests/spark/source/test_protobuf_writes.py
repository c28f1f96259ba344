"""Writes of Protobuf: Confluent's deserializer and our own reads read them; wrong options are refused before a task."""

from __future__ import annotations

import base64

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, dual_schema_id_deserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2
from pyspark.errors import PySparkException

from sparklog.base.errors import RegistryError, SchemaError
from sparklog.spark.source.encoding import plan_encoding
from sparklog.spark.source.option_parsing import parse_write_options
from support.schemas.protobuf import classes, compiled
from support.schemas.registry import schema_registry

SHOP = """
syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
message Customer { string name = 1; }
message Order {
  int64 id = 1; optional string note = 2; repeated Line lines = 3; map<string, double> labels = 4;
  google.protobuf.Timestamp at = 5; State state = 6; bool paid = 7;
  enum State { OPEN = 0; DONE = 1; }
  message Line { string sku = 1; sint32 count = 2; }
}
"""
ORDERS = """
    SELECT struct(id, IF(id % 2 = 0, NULL, concat('n', id)) AS note,
                  IF(id % 3 = 0, array(), array(struct('a' AS sku, CAST(-id AS int) AS count))) AS lines,
                  map('k', CAST(id AS double)) AS labels, timestamp_micros(id * 1001) AS at,
                  IF(id % 2 = 0, 'OPEN', 'DONE') AS state, id % 2 = 0 AS paid) AS value
    FROM range(50)
"""


@pytest.fixture(scope="module")
def registry():
    with schema_registry() as running:
        yield running


@pytest.fixture
def shop(tmp_path):
    """The descriptor set of SHOP."""
    return compiled(SHOP, tmp_path)


@pytest.fixture
def write(topics):
    def save(frame, topic, **options):
        writer = frame.write.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
        writer.option("topic", topic).options(**options).mode("append").save()

    return save


def text(content):
    return base64.b64encode(content).decode()


@pytest.mark.parametrize("place", ["prefix", "header"])
def test_confluents_deserializer_and_our_reads_get_what_was_written(spark, topics, read, write, registry, shop, place):
    topic = topics.create()
    frame = spark.sql(ORDERS).coalesce(1)
    of_registry = {"valueFormat": "protobuf", "schema.registry.url": registry.url, "valueMessageName": "Order"}
    write(frame, topic, **of_registry, valueSchema=text(shop), **{"schema.id.serializer": place})
    of = classes(shop)["shop.Order"]
    conf = {"use.deprecated.format": False, "schema.id.deserializer": dual_schema_id_deserializer}
    deserialize = ProtobufDeserializer(of, conf, SchemaRegistryClient({"url": registry.url}))
    found = {}
    for row in read(topic, includeHeaders="true").collect():
        headers = [(each.key, bytes(each.value)) for each in row.headers or ()]
        assert len(headers) == (place == "header")
        message = deserialize(bytes(row.value), SerializationContext(topic, MessageField.VALUE, headers))
        found[message.id] = message
    for row in frame.collect():
        message, value = found[row.value.id], row.value
        assert (message.note if message.HasField("note") else None) == value.note
        assert [(each.sku, each.count) for each in message.lines] == [tuple(each) for each in value.lines]
        assert (dict(message.labels), message.State.Name(message.state)) == (value.labels, value.state)
        assert (message.paid, message.at.ToMicroseconds()) == (value.paid, value.id * 1001)
    again = read(topic, **of_registry).orderBy("offset").select("value.*")
    assert again.collect() == frame.orderBy("value.id").select("value.*").collect()


def test_without_a_registry_bodies_stand_alone_and_null_is_a_tombstone(spark, topics, read, write, shop):
    topic = topics.create(1)
    frame = spark.createDataFrame(
        [(("k",), ("a", 5)), (("l",), None), (None, ("", 0))],
        "key struct<name: string>, value struct<sku: string, count: int>",
    ).coalesce(1)
    options = {
        "valueFormat": "protobuf", "valueSchema": text(shop), "valueMessageName": "shop.Order.Line",
        "keyFormat": "protobuf", "keySchema": text(shop), "keyMessageName": "Customer",
    }  # fmt: skip
    write(frame, topic, **options)
    raw = read(topic).orderBy("offset").select("key", "value").collect()
    assert [row.value and bytes(row.value) for row in raw] == [b"\x0a\x01a\x10\x0a", None, b"\x0a\x00\x10\x00"]
    assert read(topic, **options).orderBy("offset").select("key", "value").collect() == frame.collect()


def test_a_row_that_protobuf_does_not_have_names_topic_row_and_field(spark, topics, read, write, shop):
    topic = topics.create()
    frame = spark.range(0, 10, numPartitions=1).selectExpr("struct(IF(id = 7, 'GONE', 'OPEN') AS state) AS value")
    with pytest.raises(PySparkException) as failed:
        write(frame, topic, valueFormat="protobuf", valueSchema=text(shop), valueMessageName="Order")
    assert f"topic {topic}: row 7 of task 0: value.state: the text is no symbol of the enum" in str(failed.value)
    assert read(topic).count() == 0


def planned(frame, **options):
    return plan_encoding(parse_write_options({"bootstrap.servers": "a:1", **options}).typed, frame.schema).formats


def test_the_registry_says_which_schema_is_written(spark, registry, shop):
    frame = spark.createDataFrame([(("x",),)], "value struct<name: string>")
    file = descriptor_pb2.FileDescriptorSet.FromString(shop).file[-1]
    options = {
        "valueFormat": "protobuf", "schema.registry.url": registry.url, "valueSubject": "chosen",
        "valueMessageName": "Customer",
    }  # fmt: skip
    known = {**options, "valueSchema": text(shop), "auto.register.schemas": "false"}
    with pytest.raises(RegistryError, match="has no subject chosen with this schema"):
        planned(frame, **known)
    number = registry.register_protobuf("chosen", file.SerializeToString())
    latest = planned(frame, **options, **{"use.latest.version": "true"})["value"]
    assert (latest.naming.schema_id, latest.naming.indexes) == (number, b"\0")
    assert planned(frame, **known)["value"] == latest
    del options["valueSubject"]
    line = {**options, "valueSchemaId": str(number), "valueMessageName": "shop.Order.Line"}
    lines = spark.createDataFrame([(("x",),)], "value struct<sku: string>")
    assert planned(lines, **line)["value"].naming.indexes == b"\x04\x02\x02"  # the entry of the map is the first
    assert registry.subjects["chosen"] == [number]


def test_what_does_not_fit_is_said_and_nothing_is_registered(spark, registry, shop, tmp_path):
    options = {
        "valueFormat": "protobuf", "schema.registry.url": registry.url, "valueSubject": "refused",
        "valueMessageName": "Customer",
    }  # fmt: skip
    frame = spark.createDataFrame([((1,),)], "value struct<name: int>")
    with pytest.raises(SchemaError, match="column value: name: int32 cannot be written as string"):
        planned(frame, **options, valueSchema=text(shop))
    compiled('syntax = "proto3"; package base; message Money { int64 cents = 1; }', tmp_path, "base/money.proto")
    importing = 'syntax = "proto3"; import "base/money.proto"; message Customer { base.Money name = 1; }'
    with pytest.raises(SchemaError, match=r"imports base/money.proto: register it with its imports, and write it with"):
        planned(frame, **options, valueSchema=text(compiled(importing, tmp_path)))
    registry.register("of-avro", {"type": "record", "name": "R", "fields": []})
    with pytest.raises(SchemaError, match="the schema is AVRO, not PROTOBUF"):
        planned(frame, **{**options, "valueSubject": "of-avro", "use.latest.version": "true"})
    assert "refused" not in registry.subjects
