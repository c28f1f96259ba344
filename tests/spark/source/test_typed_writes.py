"""Typed keys and values of a write: other readers and our own read them; mistakes are refused before a task runs."""

from __future__ import annotations

import json

import fastavro
import pyarrow as pa
import pyspark.sql.functions as f
import pytest
from chispa import assert_df_equality
from confluent_kafka.schema_registry import SchemaRegistryClient, dual_schema_id_deserializer
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import AnalysisException, PySparkException

from sparklog.base.errors import ConfigError, MalformedRecord, RegistryError, SchemaError
from sparklog.schemas.framing import HEADERS, frame_of
from sparklog.schemas.write_formats import SchemaNaming
from sparklog.spark.source.encoding import RowEncoding, plan_encoding
from sparklog.spark.source.option_parsing import parse_write_options
from support.patience import PATIENCE_S
from support.schemas.registry import schema_registry

ORDERS = """
    SELECT id, struct(id, concat('n', id) AS name, CAST(id / 7 AS decimal(20, 3)) AS price,
                      IF(id % 3 = 0, NULL, array(struct(CAST(id AS int) AS count))) AS items,
                      map('k', CAST(id AS double)) AS labels, id % 2 = 0 AS paid,
                      timestamp_micros(id * 1001) AS at, date_from_unix_date(CAST(id AS int)) AS day,
                      CAST(concat('b', id) AS binary) AS raw) AS value
    FROM range(100)
"""
ONE_INT = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}


@pytest.fixture(scope="module")
def registry():
    with schema_registry() as running:
        yield running


@pytest.fixture
def write(topics):
    def save(frame, topic, **options):
        writer = frame.write.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
        writer.option("topic", topic).options(**options).mode("append").save()

    return save


def of_registry(registry, **options):
    return {"valueFormat": "avro", "schema.registry.url": registry.url, **options}


def bodies(read, topic):
    return [bytes(row.value) for row in read(topic).orderBy("offset").select("value").collect()]


def test_confluents_deserializer_and_our_reads_get_what_was_written(spark, topics, read, write, registry):
    topic = topics.create()
    frame = spark.sql(ORDERS).coalesce(1)
    write(frame.select("value"), topic, **of_registry(registry))
    (number,) = registry.subjects[f"{topic}-value"]
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext(topic, MessageField.VALUE)
    found = [deserialize(body, context) for body in bodies(read, topic)]
    wanted = [row.value.asDict(recursive=True) for row in frame.collect()]
    for name in ("id", "name", "price", "items", "labels", "paid", "day", "raw"):
        assert [each[name] for each in found] == [each[name] for each in wanted], name
    assert all(body.startswith(b"\0" + number.to_bytes(4, "big")) for body in bodies(read, topic))
    again = read(topic, **of_registry(registry)).orderBy("offset").select("value.*")
    assert_df_equality(again, frame.orderBy("id").select("value.*"), ignore_nullable=True)


def test_the_derived_schema_is_sparks_own(spark):
    nested = "IF(id > 1, array(array(struct(value AS twice))), NULL) AS nested"
    frame = spark.sql(ORDERS).selectExpr(f"struct(*, {nested}, named_struct('x', '') AS x) AS value")
    converters = spark.sparkContext._jvm.org.apache.spark.sql.avro.SchemaConverters
    of = spark._jsparkSession.parseDataType(frame.schema["value"].dataType.json())
    wanted = json.loads(converters.toAvroType(of, False, "topLevelRecord", "").toString())
    assert fastavro.parse_schema(json.loads(planned(frame, valueFormat="avro")["value"].schema.text)) == (
        fastavro.parse_schema(wanted)
    )


def test_keys_and_values_have_formats_of_their_own_and_null_is_a_tombstone(spark, topics, read, write):
    topic = topics.create(1)
    frame = spark.createDataFrame(
        [(1, ("a", [1, None])), (2, None), (None, ("b", None))], "key long, value struct<name: string, n: array<int>>"
    ).coalesce(1)
    written = {"keyFormat": "avro", "keySchema": "long", "valueFormat": "json"}
    write(frame, topic, **written)
    raw = read(topic).orderBy("offset").select("key", "value").collect()
    assert [row.key and bytes(row.key) for row in raw] == [b"\2", b"\4", None]
    assert [row.value and json.loads(row.value) for row in raw] == [{"name": "a", "n": [1, None]}, None, {"name": "b"}]
    table = read(topic, **written, valueSchema="name string, n array<int>").orderBy("offset").select("key", "value")
    assert table.collect() == frame.collect()


def test_texts_are_written_as_they_are(spark, topics, read, write):
    topic = topics.create()
    write(spark.createDataFrame([("ä",)], "value string"), topic, valueFormat="string")
    assert bodies(read, topic) == ["ä".encode()]


def test_a_stream_writes_each_trigger_in_the_latest_schema(spark, topics, read, registry, tmp_path):
    source, topic = topics.create(), topics.create()
    schema = {"type": "record", "name": "N", "namespace": "shop", "fields": [{"name": "n", "type": "long"}]}
    number = registry.register("shop.N", schema)
    topics.fill(source, 30)
    stream = spark.readStream.format("sparklog").option("bootstrap.servers", topics.bootstrap)
    rows = stream.option("subscribe", source).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10)
    query = (
        rows.load().select(f.struct(f.col("offset").alias("n")).alias("value")).writeStream.format("sparklog")
        .option("bootstrap.servers", topics.bootstrap).option("topic", topic)
        .options(**of_registry(registry, valueSubject="shop.N", **{"use.latest.version": "true"}))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(PATIENCE_S)
    assert {body[:5] for body in bodies(read, topic)} == {b"\0" + number.to_bytes(4, "big")}
    values = read(topic, **of_registry(registry, valueSubject="shop.N")).select("value.n").collect()
    assert sorted(row.n for row in values) == list(range(30))
    assert registry.subjects["shop.N"] == [number]


def test_a_null_where_the_schema_has_none_names_topic_row_and_field(spark, topics, read, write):
    topic = topics.create()
    schema = {"type": "record", "name": "A", "fields": [{"name": "a", "type": {**ONE_INT, "name": "B"}}]}
    frame = spark.range(0, 10, numPartitions=1).selectExpr("struct(struct(IF(id = 7, NULL, 1) AS a) AS a) AS value")
    with pytest.raises(PySparkException) as failed:
        write(frame, topic, valueFormat="avro", valueSchema=json.dumps(schema))
    said = f"topic {topic}: row 7 of task 0: value.a.a: it is null, and the schema has no null here"
    assert said in str(failed.value)
    assert read(topic).count() == 0


def test_rows_of_all_batches_count_and_the_column_topic_names_the_topic(spark):
    frame = spark.createDataFrame([((1,),)], "value struct<a: int>")
    (writing,) = planned(frame, valueFormat="avro", valueSchema=json.dumps(ONE_INT)).values()
    rows = RowEncoding({"value": writing}).start(None)

    def batch(*values):
        columns = {"topic": ["t", "u"], "value": pa.array([{"a": each} for each in values], writing.type)}
        return pa.RecordBatch.from_pydict(columns)

    assert rows.encode(batch(1, 2)).to_pydict() == {"topic": ["t", "u"], "value": [b"\2", b"\4"]}
    with pytest.raises(MalformedRecord, match=r"topic u: row 3 of task 0: value.a: it is null"):
        rows.encode(batch(3, None))


def test_what_does_not_fit_is_said_before_a_task_runs_and_nothing_is_registered(spark, topics, write, registry):
    topic = topics.create()
    failing = f.udf(lambda _: 1 / 0, "long")  # a task would fail otherwise
    frame = spark.range(1).select(f.struct(failing("id").alias("id")).alias("value"))
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    with pytest.raises(AnalysisException, match="id: int64 cannot be written as int"):
        write(frame, topic, **of_registry(registry, valueSchema=json.dumps(schema)))
    with pytest.raises(AnalysisException, match=f"has no subject {topic}-value with this schema"):
        write(frame, topic, **of_registry(registry, **{"auto.register.schemas": "false"}))
    assert f"{topic}-value" not in registry.subjects
    with pytest.raises(AnalysisException, match="keyFormat = json: there is no column key"):
        write(frame, topic, keyFormat="json")


def planned(frame, **options):
    return plan_encoding(parse_write_options({"bootstrap.servers": "a:1", **options}).typed, frame.schema).formats


def test_the_registry_says_which_schema_is_written(spark, registry):
    frame = spark.createDataFrame([((1,),)], "value struct<id: int NOT NULL>")
    wide = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    number = registry.register("s", wide)
    options = of_registry(registry, valueSubject="s")
    latest = planned(frame, **options, **{"use.latest.version": "true"})["value"]
    assert (latest.naming.schema_id, latest.encoder().encode(latest.type and _column(frame)).to_pylist()) == (
        number, [b"\0" + number.to_bytes(4, "big") + b"\2"],
    )  # fmt: skip
    by_id = planned(frame, **of_registry(registry, valueSchemaId=str(number)))["value"]
    assert by_id == latest
    known = planned(frame, **options, valueSchema=json.dumps(wide), **{"auto.register.schemas": "false"})["value"]
    assert known.naming == SchemaNaming(schema_id=number)
    assert registry.subjects["s"] == [number]
    derived = planned(frame, **options)["value"]
    assert registry.subjects["s"] == [number, derived.naming.schema_id]
    assert json.loads(registry.version("s", 2)["schema"])["name"] == "topLevelRecord"


def _column(frame):
    return frame.toArrow()["value"].combine_chunks()


def test_headers_name_the_schemas_by_their_guids(spark, topics, read, write, registry):
    topic = topics.create(1)
    named = of_registry(registry, keyFormat="avro", **{"schema.id.serializer": "header"})
    frame = spark.createDataFrame(
        [("number one", ("some text",), [("trace", b"t")]), ("number two", None, None), (None, ("other text",), [])],
        "key string, value struct<name: string>, headers array<struct<key: string, value: binary>>",
    ).coalesce(1)
    write(frame, topic, **named)
    rows = read(topic, includeHeaders="true").orderBy("offset").collect()
    client = SchemaRegistryClient({"url": registry.url})
    deserialize = AvroDeserializer(client, conf={"schema.id.deserializer": dual_schema_id_deserializer})
    found = []
    for row in rows:
        headers = [(each.key, bytes(each.value)) for each in row.headers or ()]
        fields = ((row.key, MessageField.KEY), (row.value, MessageField.VALUE))
        found.append(
            [body and deserialize(bytes(body), SerializationContext(topic, field, headers)) for body, field in fields]
        )
    assert found == [["number one", {"name": "some text"}], ["number two", None], [None, {"name": "other text"}]]
    value, key = HEADERS["value"], HEADERS["key"]
    assert [[each.key for each in row.headers or ()] for row in rows] == [["trace", value, key], [key], [value]]
    again = read(topic, **of_registry(registry, keyFormat="avro")).orderBy("offset").select("key", "value")
    assert again.collect() == frame.select("key", "value").collect()
    without = topics.create(1)
    write(frame.select("value"), without, **of_registry(registry, **{"schema.id.serializer": "header"}))
    rows = read(without, **of_registry(registry)).orderBy("offset").collect()
    assert [row.value and row.value.name for row in rows] == ["some text", None, "other text"]


def _dicts(items):
    return items and [each.asDict() for each in items]


@pytest.mark.parametrize("place", ["prefix", "header"])
def test_json_objects_name_their_schema_too(spark, topics, read, write, registry, place):
    topic = topics.create()
    frame = spark.sql(ORDERS).coalesce(1).selectExpr("struct(value.id, value.items, value.at, value.paid) AS value")
    named = {"valueFormat": "json", "schema.registry.url": registry.url, "schema.id.serializer": place}
    write(frame, topic, **named)
    (number,) = registry.subjects[f"{topic}-value"]
    schema = json.loads(registry.schemas[number - 1]["kept"]["schema"])
    assert registry.schemas[number - 1]["kept"]["schemaType"] == "JSON"
    assert schema["properties"]["at"] == {"type": "string", "format": "date-time"}
    deserialize = JSONDeserializer(None, schema_registry_client=SchemaRegistryClient({"url": registry.url}))
    values = {}
    for row in read(topic, includeHeaders="true").collect():
        headers = [(each.key, bytes(each.value)) for each in row.headers or ()]
        assert headers == ([(HEADERS["value"], frame_of(registry.guid(number)))] if place == "header" else [])
        assert bytes(row.value[:5]) == frame_of(number) or place == "header"
        context = SerializationContext(topic, MessageField.VALUE, headers)
        found = deserialize(bytes(row.value), context)  # checks it by the schema
        values[found["id"]] = found.get("items"), found["paid"]
    assert values == {row.value.id: (_dicts(row.value["items"]), row.value.paid) for row in frame.collect()}
    again = read(topic, valueFormat="json", valueSchema=frame.schema["value"].dataType.simpleString())
    assert again.orderBy("offset").select("value.*").collect() == frame.orderBy("value.id").select("value.*").collect()


def test_a_registry_without_guids_cannot_be_named_in_headers(spark, registry):
    frame = spark.createDataFrame([((1,),)], "value struct<unnamed: int>")
    number = registry.register("unnamed", {"type": "record", "name": "R", "fields": []})
    guid = registry.schemas[number - 1]["guid"]
    registry.schemas[number - 1]["guid"] = ""
    options = of_registry(registry, valueSchemaId=str(number), **{"schema.id.serializer": "header"})
    with pytest.raises(RegistryError, match=f"gives no GUID for schema {number}, as Confluent Platform 8 does"):
        planned(frame, **options)
    registry.schemas[number - 1]["guid"] = guid


def test_an_id_is_asked_for_once(spark, registry):
    frame = spark.createDataFrame([((1,),)], "value struct<once: int>")
    options = of_registry(registry, topic="once")
    before = len(registry.requests)
    assert planned(frame, **options) == planned(frame, **options)
    assert registry.requests[before:] == ["/subjects/once-value/versions"]


def test_a_registry_that_refuses_or_is_down_stops_the_write(spark, registry):
    frame = spark.createDataFrame([((1,),)], "value struct<refused: int>")
    registry.failures = [409]
    with pytest.raises(RegistryError, match=r"column value: .* does not take subject refused-value with this schema"):
        planned(frame, **of_registry(registry, topic="refused"))
    with pytest.raises(SchemaError, match=r"column value: .* has no schema 99"):
        planned(frame, **of_registry(registry, valueSchemaId="99"))


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("value int", {"valueFormat": "string"}, "valueFormat = string: column value is int; cast it to string"),
        ("value map<string, int>", {"valueFormat": "json"}, "a JSON object needs a struct of its fields"),
        ("value struct<m: map<string, int>>", {"valueFormat": "json"}, "m: map<string, int32> cannot be written as"),
        ("value string", {"keyFormat": "avro"}, "keyFormat = avro: there is no column key"),
        ("value map<int, int>", {"valueFormat": "avro"}, "topLevelRecord: Avro has no map<int32, int32"),
    ],
)
def test_columns_that_a_format_cannot_write_are_refused(spark, columns, options, said):
    with pytest.raises((ConfigError, SchemaError)) as refused:
        planned(spark.createDataFrame([], columns), **options)
    assert said in str(refused.value)
