"""Topics as tables: one call creates a view of each topic."""

from __future__ import annotations

import json

import pytest
from google.protobuf import descriptor_pb2

from sparklog.base.errors import ConfigError, RegistryError
from sparklog.client import Consumer
from sparklog.spark import tables
from support.patience import PATIENCE_S
from support.schemas.protobuf import compiled
from support.schemas.registry import schema_registry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
ENDLESS = {
    "type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}],
}  # fmt: skip


@pytest.fixture
def registry():
    with schema_registry() as running:
        yield running


@pytest.fixture
def session(spark):
    """A session without views of other tests."""
    return spark.newSession()


@pytest.fixture
def shop(topics):
    """Four topics, whose names share a prefix; the first has a record that names schema 1."""
    shop = topics.create()
    topics.producer.send(shop, b"\0\0\0\0\1" + b"\x54").result(PATIENCE_S)
    for more in ("", ".plain", "-endless", "_json"):
        if more:
            topics.admin.create_topic(f"{shop}{more}", partitions=2)
    topics.reconnect()
    topics.fill(f"{shop}.plain", 3, partition=1)
    return shop


def options_of(topics, shop, **options):
    return {"kafka.bootstrap.servers": topics.bootstrap, "subscribePattern": f"{shop}([._-].*)?", **options}


def describe(session, name):
    return {row.col_name: row.data_type for row in session.sql(f"DESCRIBE {name}").collect()}


def test_each_topic_is_a_table_with_the_types_of_its_schemas(session, topics, registry, shop, tmp_path):
    registry.register(f"{shop}-value", ORDER)
    registry.register(f"{shop}-endless-value", ENDLESS)
    registry.add(f"{shop}_json-value", {"schema": "{}", "schemaType": "JSON"})
    content = compiled('syntax = "proto3"; message Id { int64 id = 1; }', tmp_path)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(content).file
    registry.register_protobuf(f"{shop}.plain-key", file.SerializeToString())
    options = options_of(topics, shop, **{"schema.registry.url": registry.url}, mode="PERMISSIVE")
    base = shop.replace("-", "_")
    made = {table.name: table for table in tables(session, options)}
    assert {name: table.topic for name, table in made.items()} == {
        base: shop,
        f"{base}_endless": f"{shop}-endless",
        f"{base}_json": f"{shop}_json",
        f"{base}_plain": f"{shop}.plain",
    }
    shown = {row.tableName for row in session.sql("SHOW TABLES").collect() if row.isTemporary}
    assert shown == made.keys()
    assert made[base].formats == {"value": "avro"}
    assert describe(session, base)["value"] == "struct<id:bigint>"
    assert made[f"{base}_plain"].formats == {"key": "protobuf"}
    shown = describe(session, f"{base}_plain")
    assert (shown["key"], shown["value"]) == ("struct<id:bigint>", "binary")
    assert made[f"{base}_json"].untyped == {"value": f"the schema of {shop}_json-value is of the type JSON"}
    assert "contains itself" in made[f"{base}_endless"].untyped["value"]
    assert [row.id for row in session.sql(f"SELECT value.id FROM {base}").collect()] == [42]
    assert session.sql(f"SELECT count(*) AS n FROM {base}_plain WHERE partition = 1").first().n == 3


def test_another_call_shows_newer_records_and_topics(session, topics, shop):
    options = options_of(topics, f"{shop}.plain")
    [made] = tables(session, options)
    assert session.table(made.name).count() == 3
    topics.fill(f"{shop}.plain", 2, partition=0)
    topics.admin.create_topic(f"{shop}.plain.new", partitions=1)
    assert len(tables(session, options)) == 2
    assert session.table(made.name).count() == 5


def test_internal_topics_are_no_tables(session, topics, shop):
    with Consumer(bootstrap_servers=topics.bootstrap, group_id=f"{shop}-group") as consumer:
        consumer.subscribe([shop])
        consumer.poll()
        consumer.commit()
    made = tables(session, {"path": str(topics.broker.data_dir), "subscribePattern": f"{shop}|__.*"})
    assert [table.topic for table in made] == [shop]


def test_tables_have_a_prefix_if_it_is_given(session, topics, shop):
    made = tables(session, {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": shop}, prefix="log_")
    assert [table.name for table in made] == [f"log_{shop}".replace("-", "_")]
    assert session.sql(f"SELECT * FROM {made[0].name}").count() == 1


@pytest.mark.parametrize("other", ["-more", "_MORE"])
def test_topics_that_spark_would_take_for_one_are_refused(session, topics, other):
    first = topics.create()
    for name in ("_more", other):
        topics.admin.create_topic(f"{first}{name}", partitions=1)
    with pytest.raises(ConfigError, match="would have views of the same name"):
        tables(session, options_of(topics, first))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assign": '{"a": [0]}'}, "a table is a whole topic"),
        ({"startingOffsets": json.dumps({"a": {"0": 1}})}, "of single partitions have no meaning for tables"),
        ({"endingOffsetsByTimestamp": json.dumps({"a": {"0": 1}})}, "of single partitions have no meaning for tables"),
        ({"maxOffsetsPerTrigger": "5"}, "no meaning for a batch read"),
    ],
)
def test_options_of_partitions_are_refused(session, options, message):
    with pytest.raises(ConfigError, match=message):
        tables(session, {"kafka.bootstrap.servers": "127.0.0.1:1", **options})


def test_a_registry_that_refuses_is_an_error_and_no_table_of_bytes(session, topics, registry, shop):
    registry.authorization = "Bearer secret"
    with pytest.raises(RegistryError, match="refuses"):
        tables(session, options_of(topics, shop, **{"schema.registry.url": registry.url}))
