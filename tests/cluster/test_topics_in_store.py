import dataclasses
import json
from collections.abc import Iterator

import pytest

from sparklog.base.errors import NodeExists, NoNode
from sparklog.base.ids import decode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.model import PartitionInfo
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.topics import TopicStore

ORDERS_ID = decode_id("zKEvD5ApShu5dhO_LAFBxA")
LED = PartitionInfo(leader=1, leader_epoch=0, replicas=(1, 2), in_sync_replicas=(1,))


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    opened = SqliteStore(":memory:")
    yield opened
    opened.close()


@pytest.fixture
def topics(store: SqliteStore) -> TopicStore:
    return TopicStore(store, TopicConfig(retention_ms=5))


def test_a_topic_is_loaded_as_it_was_created(topics: TopicStore) -> None:
    topics.create("orders", ORDERS_ID, [LED, LED], {"segment.bytes": "2000000"})
    topic = topics.load("orders")
    assert topics.names() == ["orders"]
    assert topic.topic_id == ORDERS_ID
    assert topic.partitions == (LED, LED)
    assert (topic.config.segment_bytes, topic.config.retention_ms) == (2_000_000, 5)


def test_the_nodes_are_those_of_kafka(topics: TopicStore, store: SqliteStore) -> None:
    topics.create("orders", ORDERS_ID, [LED], {"retention.ms": "9"})
    assert json.loads(store.get("/brokers/topics/orders").data) == {
        "version": 3, "topic_id": "zKEvD5ApShu5dhO_LAFBxA", "partitions": {"0": [1, 2]},
    }  # fmt: skip
    assert json.loads(store.get("/config/topics/orders").data) == {"version": 1, "config": {"retention.ms": "9"}}
    assert json.loads(store.get("/brokers/topics/orders/partitions/0/state").data) == {
        "version": 1, "controller_epoch": 0, "leader": 1, "leader_epoch": 0, "isr": [1],
    }  # fmt: skip


def test_a_topic_is_created_once(topics: TopicStore) -> None:
    topics.create("orders", ORDERS_ID, [LED], {})
    with pytest.raises(NodeExists):
        topics.create("orders", ORDERS_ID, [LED], {})


def test_a_topic_grows_behind_its_partitions(topics: TopicStore) -> None:
    topics.create("orders", ORDERS_ID, [LED] * 11, {})
    other = dataclasses.replace(LED, leader=2)
    topics.grow(topics.load("orders"), [other])
    assert topics.load("orders").partitions == (LED,) * 11 + (other,)


def test_leaders_and_overrides_change_in_place(topics: TopicStore) -> None:
    topics.create("orders", ORDERS_ID, [LED], {"retention.ms": "9"})
    elected = dataclasses.replace(LED, leader=2, leader_epoch=4)
    topics.set_states("orders", [elected])
    topics.set_overrides("orders", {})
    topic = topics.load("orders")
    assert topic.partitions == (elected,)
    assert topic.config.retention_ms == 5


def test_a_deletion_is_marked_until_the_topic_is_removed(topics: TopicStore) -> None:
    topics.create("orders", ORDERS_ID, [LED], {})
    topics.mark_deleted("orders")
    assert (topics.marked_deleted(), topics.names()) == (["orders"], ["orders"])
    topics.remove("orders")
    assert (topics.marked_deleted(), topics.names()) == ([], [])
    with pytest.raises(NoNode):
        topics.load("orders")
    topics.remove("orders")
