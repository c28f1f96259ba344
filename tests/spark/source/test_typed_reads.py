"""Topics with typed keys and values: as Spark sees them, from files and through the broker, in batches and streams."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as f
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from sparklog.arrow.options import ParseMode
from sparklog.arrow.typed import DecodingPlan, RowDecoder
from sparklog.base.ids import TopicPartition
from sparklog.records.schema import HEADERS_TYPE
from sparklog.schemas.avro import parse_avro
from sparklog.schemas.avro_decoding import AvroDecoder
from sparklog.schemas.column_kernels import BAD_SIZE, FAULTS
from sparklog.schemas.columns import lay_out
from sparklog.schemas.formats import AvroFormat, StringFormat
from sparklog.schemas.framing import HEADERS, bodies, frame_of
from sparklog.schemas.pieces import DecodedPiece
from sparklog.schemas.registry import SchemaText
from sparklog.spark.columns import spark_type
from support.patience import PATIENCE_S
from support.schemas.avro import samples, written
from support.schemas.registry import schema_registry

pytestmark = pytest.mark.slow


def record(name, **fields):
    return {"type": "record", "name": name, "fields": [{"name": each, "type": of} for each, of in fields.items()]}


ORDER_1 = record("Order", id="int")
ORDER_2 = record("Order", id="long")
ORDER_2["fields"].append({"name": "note", "type": ["null", "string"], "default": None})
ORDER_3 = {**ORDER_2, "fields": [*ORDER_2["fields"], {"name": "paid", "type": "boolean", "default": False}]}


@pytest.fixture(scope="module")
def registry():
    with schema_registry() as running:
        yield running


def framed(registry, topic, schema, *values):
    """Values as Confluent's serializer writes them, after it has registered their schema."""
    number = registry.register(f"{topic}-value", schema)
    return [frame_of(number) + body for body in written(schema, values)]


def send(topics, topic, values, **columns):
    topics.fill(topic, len(values), value=pa.array(values, pa.binary()), **columns)


def typed(read, topic, registry, **options):
    return read(topic, valueFormat="avro", **{"schema.registry.url": registry.url}, **options)


def test_a_topic_with_schemas_of_all_ages_is_one_table(topics, read, registry):
    topic = topics.create()
    send(topics, topic, framed(registry, topic, ORDER_1, {"id": 1}))
    newer = framed(registry, topic, ORDER_2, {"id": 2**40, "note": "new"}, {"id": 3, "note": None})
    send(topics, topic, [newer[0], None, *framed(registry, topic, ORDER_1, {"id": -1}), newer[1]])
    for mode in ("segments", "fetch"):
        table = typed(read, topic, registry, readMode=mode)
        assert table.schema["value"].dataType.simpleString() == "struct<id:bigint,note:string>"
        rows = table.orderBy("offset").select("offset", "value.id", "value.note", f.isnull("value")).collect()
        assert [tuple(row) for row in rows] == [
            (0, 1, None, False), (1, 2**40, "new", False), (2, None, None, True), (3, -1, None, False),
            (4, 3, None, False),
        ]  # fmt: skip
        assert table.where("value.id > 1").count() == 2


def test_headers_name_schemas_too(topics, read, registry):
    topic = topics.create()
    number = registry.register(f"{topic}-value", ORDER_1)
    headers = pa.array([[{"key": HEADERS["value"], "value": frame_of(registry.guid(number))}]] * 2, HEADERS_TYPE)
    send(topics, topic, written(ORDER_1, [{"id": 1}, {"id": 2}]), headers=headers)
    for mode in ("segments", "fetch"):
        table = typed(read, topic, registry, readMode=mode)
        assert [row.id for row in table.select("value.id").collect()] == [1, 2]
        assert "headers" not in table.columns


EVERYTHING = record(
    "Everything",
    boolean="boolean",
    int="int",
    long="long",
    float="float",
    double="double",
    bytes="bytes",
    string="string",
    fixed={"type": "fixed", "name": "F", "size": 2},
    enum={"type": "enum", "name": "E", "symbols": ["A", "B"]},
    date={"type": "int", "logicalType": "date"},
    instant={"type": "long", "logicalType": "timestamp-millis"},
    local={"type": "long", "logicalType": "local-timestamp-micros"},
    price={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    items={"type": "array", "items": record("Item", sku="string", count=["null", "int"])},
    labels={"type": "map", "values": ["null", "long"]},
    choice=["null", "string", {"type": "array", "items": "int"}],
    inner=["null", record("Inner", a="int", b="string")],
)


def test_every_type_reaches_spark(spark, topics, tmp_path):
    value = {
        "boolean": True, "int": -5, "long": 2**60, "float": 0.5, "double": 0.25, "bytes": b"\0\xff", "string": "ä",
        "fixed": b"ab", "enum": "B", "date": datetime.date(1969, 12, 31),
        "instant": datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000, datetime.UTC),
        "local": datetime.datetime(2020, 1, 2, 3, 4, 5, 678_901), "price": Decimal("-12345678.90"),
        "items": [{"sku": "a", "count": None}, {"sku": "b", "count": 2}], "labels": {"x": 1, "y": None},
        "choice": [1, 2], "inner": {"a": 1, "b": "c"},
    }  # fmt: skip
    nothing = {**value, "items": [], "labels": {}, "choice": None, "inner": None}
    topic = topics.create()
    send(topics, topic, [*written(EVERYTHING, [value, nothing]), None])
    topics.await_checkpoint(topic, 3)
    table = spark.read.format("sparklog").option("valueFormat", "avro").option("valueSchema", json.dumps(EVERYTHING))
    table = table.load(topics.folder(topic))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    first, second, third = (row.value for row in table.orderBy("offset").select("value").collect())
    expected = {
        **value,
        "bytes": bytearray(b"\0\xff"),
        "fixed": bytearray(b"ab"),
        "choice": {"member0": None, "member1": [1, 2]},
    }
    moment = table.orderBy("offset").select(f.unix_millis("value.instant")).first()[0]
    assert moment == int(value["instant"].timestamp() * 1000)
    shown = first.asDict(recursive=True)
    del shown["instant"], expected["instant"]
    assert shown == expected
    assert (second["items"], second.labels, second.choice, second.inner) == ([], {}, None, None)
    assert third is None
    inner = table.select("value.inner.b", f.size("value.items"), "value.items.sku", "value.labels.y").collect()
    assert [tuple(row) for row in inner] == [
        ("c", 2, ["a", "b"], None), (None, 0, [], None), (None, None, None, None)
    ]  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(samples())
def test_sparks_types_say_the_same_as_arrows(sample):
    arrow = lay_out(parse_avro(json.dumps(sample.schema))).root.type
    field = StructField("value", spark_type(arrow))
    assert to_arrow_schema(StructType([field]), timezone="UTC").field("value").type == arrow


def test_keys_and_values_have_formats_of_their_own(topics, read):
    topic = topics.create()
    keys = [*written("long", [7, -7]), None]
    send(topics, topic, [b"a", "ä".encode(), None], key=pa.array(keys, pa.binary()))
    table = read(topic, keyFormat="avro", keySchema="long", valueFormat="string")
    assert [tuple(row) for row in table.select("key", "value").collect()] == [(7, "a"), (-7, "ä"), (None, None)]


def test_json_objects_have_the_columns_of_a_ddl_text(topics, read):
    topic = topics.create()
    send(topics, topic, [b'{"id": 1, "day": "2020-01-02", "items": [{"sku": "a"}]}', b"{}", None, b'{"id": "x"}', b"{"])
    table = read(
        topic,
        valueFormat="json",
        valueSchema="id bigint NOT NULL, day date, n smallint, items array<struct<sku: string>>",
        mode="PERMISSIVE",
    )
    expected = "struct<id:bigint,day:date,n:smallint,items:array<struct<sku:string>>>"
    assert table.schema["value"].dataType.simpleString() == expected
    rows = table.orderBy("offset").select("value", "_corrupt_record.reason").collect()
    assert rows[0].value.asDict(recursive=True) == {
        "id": 1,
        "day": datetime.date(2020, 1, 2),
        "n": None,
        "items": [{"sku": "a"}],
    }
    assert rows[1].value.asDict() == {"id": None, "day": None, "n": None, "items": None}
    assert [row.value for row in rows[2:]] == [None] * 3
    assert [bool(row.reason) for row in rows] == [False, False, False, True, True]
    with pytest.raises(AnalysisException, match="m: map<string, int32> cannot be read from JSON"):
        read(topic, valueFormat="json", valueSchema="m map<string, int>")


@pytest.fixture
def malformed(topics, registry):
    """A topic with two good records, two that are malformed, and a tombstone."""
    topic = topics.create()
    good = framed(registry, topic, ORDER_1, {"id": 1}, {"id": 2})
    keys = pa.array([b"k0", b"k1", b"k2", b"k3", None], pa.binary())
    send(topics, topic, [good[0], good[0] + b"x", b"junk", good[1], None], key=keys)
    return topic


def test_failfast_names_the_record_and_the_reason(read, registry, malformed):
    with pytest.raises(PythonException) as failed:
        typed(read, malformed, registry).collect()
    assert f"{TopicPartition(malformed, 0)} offset 1: the value: there are bytes after its last field" in str(
        failed.value
    )
    assert "mode = PERMISSIVE" in str(failed.value)


def test_permissive_keeps_the_bytes_and_the_reason(read, registry, malformed):
    table = typed(read, malformed, registry, mode="PERMISSIVE")
    corrupt = "struct<key:binary,value:binary,reason:string>"
    assert table.schema["_corrupt_record"].dataType.simpleString() == corrupt
    rows = table.orderBy("offset").collect()
    assert [row.value and row.value.id for row in rows] == [1, None, None, 2, None]
    assert [bytes(row.key or b"-") for row in rows] == [b"k0", b"k1", b"k2", b"k3", b"-"]
    found = [row._corrupt_record for row in rows]
    assert found[0] is found[3] is found[4] is None
    assert (found[1].key, found[2].value) == (b"k1", b"junk")
    assert "bytes after its last field" in found[1].reason
    assert "does not begin with the magic byte" in found[2].reason
    chosen = typed(read, malformed, registry, mode="permissive", columnNameOfCorruptRecord="bad")
    assert chosen.where("bad is not null").count() == 2


def test_dropmalformed_leaves_them_out(read, registry, malformed):
    table = typed(read, malformed, registry, mode="DROPMALFORMED")
    assert sorted(row.offset for row in table.select("offset").collect()) == [0, 3, 4]


def test_a_read_names_the_columns_that_it_wants(spark, topics, registry, malformed):
    reader = spark.read.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
    reader = reader.option("subscribe", malformed).option("valueFormat", "avro")
    reader = reader.option("schema.registry.url", registry.url)
    offsets = reader.schema("offset bigint").load()
    assert offsets.count() == 5  # values are not looked at
    dropping = reader.option("mode", "PERMISSIVE").schema(
        "offset bigint, value struct<id: int>, _corrupt_record struct<key: binary, value: binary, reason: string>"
    )
    assert dropping.load().where("_corrupt_record is null").count() == 3
    with pytest.raises(AnalysisException, match="has the type of column value, struct<id:string>"):
        reader.schema("value struct<id: string>").load().collect()


def test_a_stream_keeps_its_schema_until_it_starts_again(spark, topics, registry, tmp_path):
    topic = topics.create()
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    send(topics, topic, framed(registry, topic, ORDER_2, {"id": 1, "note": "a"}))
    reader = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("valueFormat", "avro")
    reader = reader.option("schema.registry.url", registry.url)

    def start():
        rows = reader.load().select("offset", "value.*")
        writer = rows.writeStream.format("json").option("checkpointLocation", checkpoint)
        return writer.start(out)

    query = start()
    try:
        query.processAllAvailable()
        send(topics, topic, framed(registry, topic, ORDER_3, {"id": 2, "note": "b", "paid": True}))
        query.processAllAvailable()
        newer = registry.register(f"{topic}-value", ORDER_3)
        assert registry.requests.count(f"/schemas/ids/{newer}") == 1  # by the task: the plan did not know it
    finally:
        query.stop()
    query = start()
    try:
        send(topics, topic, framed(registry, topic, ORDER_3, {"id": 3, "note": None, "paid": True}))
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.schema("offset long, id long, note string, paid boolean").json(out).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(0, 1, "a", None), (1, 2, "b", None), (2, 3, None, True)]


def test_a_stream_fails_at_a_malformed_record_and_names_it(spark, topics, registry, malformed, tmp_path):
    reader = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
    reader = reader.option("subscribe", malformed).option("startingOffsets", "earliest")
    reader = reader.option("valueFormat", "avro").option("schema.registry.url", registry.url)
    writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="offset 1: the value: there are bytes after its last field"):
        writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)


def test_a_registry_with_a_password(topics, read, registry):
    topic = topics.create()
    send(topics, topic, framed(registry, topic, ORDER_1, {"id": 1}))
    registry.authorization = "Basic bWU6c2VjcmV0"
    try:
        user = {"schema.registry.basic.auth.user.info": "me:secret"}
        assert typed(read, topic, registry, **user).count() == 1
        with pytest.raises(AnalysisException, match="HTTP status 401"):
            typed(read, topic, registry)
    finally:
        registry.authorization = None


def test_what_cannot_be_read_is_said_when_the_read_is_loaded(read, topics, registry):
    topic = topics.create()
    with pytest.raises(AnalysisException, match=f"has no subject {topic}-value"):
        typed(read, topic, registry)
    tree = record("Tree", children={"type": "array", "items": "Tree"})
    registry.register(f"{topic}-value", tree)
    with pytest.raises(AnalysisException, match="Tree contains itself, and Spark has no type for that"):
        typed(read, topic, registry)
    with pytest.raises(AnalysisException, match="there is a column of that name"):
        read(topic, valueFormat="string", mode="PERMISSIVE", columnNameOfCorruptRecord="offset")
    wanted = json.dumps(record("Order", id="int", note="string"))
    table = read(topic, valueFormat="avro", valueSchema=json.dumps(ORDER_1), valueReaderSchema=wanted)
    with pytest.raises(AnalysisException, match="note is not in the writer's schema"):
        table.collect()


def test_columns_that_are_decoded_in_pieces_stay_side_by_side():
    formats = {
        "value": AvroFormat(writer=SchemaText("AVRO", "string"), reader=SchemaText("AVRO", "string")),
        "key": StringFormat(),
    }
    rows = RowDecoder(DecodingPlan(formats, ParseMode.PERMISSIVE, "bad"), ["value", "key"])

    class InPieces:
        type = pa.string()

        def __init__(self, limit_bytes):
            self.decoder = AvroDecoder(parse_avro("string"), limit_bytes=limit_bytes)
            self.entry = self.decoder.add_writer(parse_avro("string"))

        def decode(self, column, headers):
            data, starts, ends = bodies(column)
            faults = np.zeros(len(column), np.uint8)
            for values, first in self.decoder.decode(data, starts, ends, np.full(len(column), self.entry), faults):
                yield DecodedPiece(first, values, faults[first : first + len(values)], {})

    rows._decoders = {"value": InPieces(300), "key": InPieces(200)}
    texts = [f"{i:03}" * 10 for i in range(100)]
    bodies_of = written("string", texts)
    records = pa.record_batch(
        {
            "offset": pa.array(range(100)),
            "value": pa.array(bodies_of, pa.binary()),
            "key": pa.array([b"\x01" if i % 7 == 3 else each for i, each in enumerate(bodies_of)], pa.binary()),
        }
    )
    found = list(rows.decode(records, TopicPartition("t", 0)))
    assert len(found) >= 20
    decoded = [
        (offset, value, key, bad)
        for part, typed_columns in found
        for offset, value, key, bad in zip(
            part.column("offset").to_pylist(),
            *(typed_columns[name].to_pylist() for name in ("value", "key", "bad")),
            strict=True,
        )
    ]
    reason = f"the key: {FAULTS[BAD_SIZE]}"
    for i, (offset, value, key, bad) in enumerate(decoded):
        assert (offset, value) == (i, texts[i])
        if i % 7 == 3:
            assert (key, bad) == (None, {"key": b"\x01", "value": bodies_of[i], "reason": reason})
        else:
            assert (key, bad) == (texts[i], None)


@pytest.mark.parametrize("of", ["null", record("Empty"), {"type": "array", "items": "null"}, ["null"]], ids=str)
def test_types_without_values_reach_spark(topics, read, of):
    topic = topics.create()
    schema = record("R", id="int", nothing=of)
    value = {"id": 1, "nothing": {} if isinstance(of, dict) and of["type"] == "record" else None}
    if isinstance(of, dict) and of["type"] == "array":
        value["nothing"] = [None, None]
    send(topics, topic, [*written(schema, [value]), None])
    table = read(topic, valueFormat="avro", valueSchema=json.dumps(schema))
    first, second = table.orderBy("offset").select("value").collect()
    assert first.value.asDict(recursive=True) == value
    assert second.value is None
