"""Topics of Protobuf as Spark sees them: from files and through the broker, in batches and streams."""

from __future__ import annotations

import base64
import datetime

import pyarrow as pa
import pyspark.sql.functions as f
import pytest
from google.protobuf import descriptor_pb2
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from sparklog.records.schema import HEADERS_TYPE
from sparklog.schemas.framing import HEADERS, frame_of
from sparklog.schemas.protobuf import ProtobufReadOptions
from sparklog.schemas.protobuf_descriptors import from_descriptor_set
from sparklog.schemas.protobuf_program import type_of_message
from sparklog.spark.columns import spark_type
from support.schemas.protobuf import classes, compiled
from support.schemas.registry import schema_registry

ORDER_1 = 'syntax = "proto3"; package shop; message Order { int32 id = 1; }'
ORDER_2 = 'syntax = "proto3"; package shop; message Order { int64 id = 1; optional string note = 2; }'
ORDER_3 = """
syntax = "proto3"; package shop;
message Order { int64 id = 1; optional string note = 2; bool paid = 3; }
"""

EVERYTHING = """
syntax = "proto3"; package test;
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message Everything {
  double double = 1; float float = 2; int32 int = 3; int64 long = 4; uint32 uint = 5; uint64 ulong = 6;
  bool boolean = 7; string string = 8; bytes bytes = 9; Color color = 10;
  google.protobuf.Timestamp at = 11; google.protobuf.Duration took = 12; google.protobuf.StringValue wrapped = 13;
  repeated Item items = 14; map<string, int64> labels = 15; map<int32, Item> by_number = 16;
  oneof choice { string text = 17; Item item = 18; }
  repeated sint32 numbers = 19; optional int32 maybe = 20; repeated google.protobuf.Timestamp times = 21;
  enum Color { RED = 0; GREEN = 1; }
  message Item { string sku = 1; repeated string tags = 2; }
}
"""


@pytest.fixture(scope="module")
def registry():
    with schema_registry() as running:
        yield running


@pytest.fixture
def orders(registry, tmp_path):
    """Registers a version of a topic's schema and gives payloads of its messages."""

    def framed(topic, text, *values):
        content = compiled(text, tmp_path)
        file = descriptor_pb2.FileDescriptorSet.FromString(content).file[0]
        number = registry.register_protobuf(f"{topic}-value", file.SerializeToString())
        of = classes(content)["shop.Order"]
        return [frame_of(number) + b"\0" + of(**each).SerializeToString() for each in values]

    return framed


def send(topics, topic, values, **columns):
    topics.fill(topic, len(values), value=pa.array(values, pa.binary()), **columns)


def framed_read(read, topic, registry, **options):
    return read(topic, valueFormat="protobuf", **{"schema.registry.url": registry.url}, **options)


def test_every_type_reaches_spark(spark, topics, read, tmp_path):
    content = compiled(EVERYTHING, tmp_path)
    of = classes(content)["test.Everything"]
    full = of(
        double=0.5, float=0.25, int=-5, long=2**60, uint=2**32 - 1, ulong=2**64 - 1, boolean=True, string="ä",
        bytes=b"\0\xff", color=1, wrapped={"value": "w"}, items=[{"sku": "a", "tags": ["x", "y"]}, {}],
        labels={"k": -1}, by_number={7: {"sku": "b"}}, item={"sku": "c"}, numbers=[1, -2], maybe=0,
    )  # fmt: skip
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 678_901, datetime.UTC)
    full.at.FromDatetime(moment)
    full.took.FromTimedelta(datetime.timedelta(days=-1, microseconds=-5))
    full.times.add().FromDatetime(datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC))
    topic = topics.create()
    send(topics, topic, [full.SerializeToString(), b"", None])
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    path = tmp_path / "everything.desc"
    path.write_bytes(content)
    for mode, schema in (("segments", str(path)), ("fetch", base64.b64encode(content).decode())):
        table = read(
            topic, valueFormat="protobuf", valueSchema=schema, valueMessageName="Everything", readMode=mode
        ).orderBy("offset")
        first, second, third = (row.value for row in table.select("value").collect())
        shown = first.asDict(recursive=True)
        assert shown.pop("took") == datetime.timedelta(days=-1, microseconds=-5)
        shown.pop("at"), shown.pop("times")
        assert shown == {
            "double": 0.5, "float": 0.25, "int": -5, "long": 2**60, "uint": -1, "ulong": -1, "boolean": True,
            "string": "ä", "bytes": bytearray(b"\0\xff"), "color": "GREEN", "wrapped": {"value": "w"},
            "items": [{"sku": "a", "tags": ["x", "y"]}, {"sku": None, "tags": []}], "labels": {"k": -1},
            "by_number": {7: {"sku": "b", "tags": []}}, "text": None, "item": {"sku": "c", "tags": []},
            "numbers": [1, -2], "maybe": 0,
        }  # fmt: skip
        micros = table.select(f.unix_micros("value.at"), f.unix_micros(f.col("value.times")[0])).first()
        assert tuple(micros) == (int(moment.timestamp()) * 10**6 + 678_901, -315619200 * 10**6)
        lists = {"items": [], "labels": {}, "by_number": {}, "numbers": [], "times": []}
        assert second.asDict() == {**dict.fromkeys(second.asDict()), **lists}
        assert third is None


def test_options_of_from_protobuf(read, topics, tmp_path):
    content = compiled(EVERYTHING, tmp_path)
    of = classes(content)["test.Everything"]
    topic = topics.create()
    full = of(uint=2**32 - 1, ulong=2**64 - 1, color=1, wrapped={"value": "w"})
    send(topics, topic, [full.SerializeToString(), b""])
    chosen = {
        "emit.default.values": "true", "enums.as.ints": "true", "upcast.unsigned.ints": "true",
        "unwrap.primitive.wrapper.types": "true",
    }  # fmt: skip
    table = read(
        topic,
        valueFormat="protobuf",
        valueSchema=base64.b64encode(content).decode(),
        valueMessageName="test.Everything",
        **chosen,
    )
    rows = table.orderBy("offset").select("value.uint", "value.ulong", "value.color", "value.wrapped", "value.int")
    assert rows.schema.simpleString() == "struct<uint:bigint,ulong:decimal(20,0),color:int,wrapped:string,int:int>"
    assert [tuple(row) for row in rows.collect()] == [(2**32 - 1, 2**64 - 1, 1, "w", 0), (0, 0, 0, None, 0)]


def test_sparks_types_say_the_same_as_arrows(tmp_path):
    message = from_descriptor_set(compiled(EVERYTHING, tmp_path)).message(None)
    for options in (
        ProtobufReadOptions(),
        ProtobufReadOptions(upcast_unsigned_ints=True, unwrap_primitive_wrapper_types=True),
    ):
        arrow = type_of_message(message, options)
        field = StructField("value", spark_type(arrow))
        assert to_arrow_schema(StructType([field]), timezone="UTC").field("value").type == arrow


def test_a_topic_with_schemas_of_all_ages_is_one_table(topics, read, registry, orders):
    topic = topics.create()
    send(
        topics, topic, [*orders(topic, ORDER_1, {"id": 1}), *orders(topic, ORDER_2, {"id": 2**40, "note": "new"}), None]
    )
    for mode in ("segments", "fetch"):
        table = framed_read(read, topic, registry, readMode=mode)
        assert table.schema["value"].dataType.simpleString() == "struct<id:bigint,note:string>"
        rows = table.orderBy("offset").select("value.id", "value.note").collect()
        assert [tuple(row) for row in rows] == [(1, None), (2**40, "new"), (None, None)]
        assert table.where("value.id > 1").count() == 1


def test_headers_name_schemas_too(topics, read, registry, orders):
    topic = topics.create()
    (payload,) = orders(topic, ORDER_1, {"id": 7})
    number = int.from_bytes(payload[1:5], "big")
    frame = frame_of(registry.guid(number)) + b"\0"
    headers = pa.array([[{"key": HEADERS["value"], "value": frame}]] * 2, HEADERS_TYPE)
    send(topics, topic, [payload[6:]] * 2, headers=headers)
    for mode in ("segments", "fetch"):
        table = framed_read(read, topic, registry, readMode=mode)
        assert [row.id for row in table.select("value.id").collect()] == [7, 7]


def test_a_stream_keeps_its_schema_and_asks_for_new_ids(spark, topics, registry, orders, tmp_path):
    topic = topics.create()
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    send(topics, topic, orders(topic, ORDER_2, {"id": 1, "note": "a"}))
    reader = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("valueFormat", "protobuf")
    reader = reader.option("schema.registry.url", registry.url)
    rows = reader.load().select("offset", "value.*")
    query = rows.writeStream.format("json").option("checkpointLocation", checkpoint).start(out)
    try:
        query.processAllAvailable()
        send(topics, topic, orders(topic, ORDER_3, {"id": 2, "note": "b", "paid": True}))
        query.processAllAvailable()
    finally:
        query.stop()
    assert [tuple(row) for row in spark.read.json(out).select("id", "note").orderBy("id").collect()] == [
        (1, "a"), (2, "b")
    ]  # fmt: skip
    newest = len(registry.schemas)
    assert registry.requests.count(f"/schemas/ids/{newest}?format=serialized") == 1  # by the task


def test_malformed_records_and_tombstones(topics, read, registry, orders):
    topic, dead = topics.create(), topics.create()
    good = orders(topic, ORDER_2, {"id": 1}, {"id": 2})
    send(topics, topic, [good[0], good[0] + b"\x08", b"junk", None, good[1]])
    with pytest.raises(PythonException, match="offset 1: the value: it ends before its last field"):
        framed_read(read, topic, registry).collect()
    options = {"mode": "PERMISSIVE", "deadLetterTopic": dead}
    rows = framed_read(read, topic, registry, **options).orderBy("offset").collect()
    assert [row.value and row.value.id for row in rows] == [1, None, None, None, 2]
    assert [row._corrupt_record and bytes(row._corrupt_record.value) for row in rows] == [
        None, good[0] + b"\x08", b"junk", None, None
    ]  # fmt: skip
    assert {bytes(row.value) for row in read(dead).collect()} == {good[0] + b"\x08", b"junk"}
    dropping = framed_read(read, topic, registry, mode="DROPMALFORMED")
    assert sorted(row.offset for row in dropping.select("offset").collect()) == [0, 3, 4]


def test_what_cannot_be_read_is_said_when_the_read_is_loaded(topics, read, registry, orders, tmp_path):
    topic = topics.create()
    tree = base64.b64encode(compiled('syntax = "proto3"; message Tree { repeated Tree t = 1; }', tmp_path)).decode()
    with pytest.raises(AnalysisException, match=r"Tree contains itself .* and Spark has no type for that"):
        read(topic, valueFormat="protobuf", valueSchema=tree)
    with pytest.raises(AnalysisException, match="has no message Basket; it has Tree"):
        read(topic, valueFormat="protobuf", valueSchema=tree, valueMessageName="Basket")
    registry.register(f"{topic}-value", {"type": "record", "name": "Order", "fields": []})
    with pytest.raises(AnalysisException, match="the schema is AVRO, not PROTOBUF"):
        framed_read(read, topic, registry)
