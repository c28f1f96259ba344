import json
from collections.abc import Iterator, Mapping
from uuid import UUID

import pytest
from msgspec import structs

from sparklog.base.errors import BadVersion, NodeExists
from sparklog.base.ids import decode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.config_nodes import CONFIG_CHANGES
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.model import PartitionInfo, ReplicaAssignment
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.topics import ALL_BROKERS, TopicStore, decode_config_change, without_leader
from support.store_engines import dying_after_each_write

ORDERS_ID = decode_id("zKEvD5ApShu5dhO_LAFBxA")
LED = PartitionInfo(leader=1, leader_epoch=0, replicas=(1, 2), in_sync_replicas=(1,))


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    opened = SqliteStore.open(":memory:")
    yield opened
    opened.close()


@pytest.fixture
def topics(store: SqliteStore) -> TopicStore:
    made = TopicStore(store, TopicConfig(retention_ms=5))
    made.make_paths()
    return made


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
        "adding_replicas": {}, "removing_replicas": {}, "initialized": 1,
    }  # fmt: skip
    assert json.loads(store.get("/config/topics/orders").data) == {"version": 1, "config": {"retention.ms": "9"}}
    assert json.loads(store.get("/brokers/topics/orders/partitions/0/state").data) == {
        "version": 1, "controller_epoch": 0, "leader": 1, "leader_epoch": 0, "isr": [1],
    }  # fmt: skip


def test_a_topic_is_created_once(topics: TopicStore) -> None:
    topics.create("orders", ORDERS_ID, [LED], {})
    with pytest.raises(NodeExists):
        topics.create("orders", ORDERS_ID, [LED], {})


def test_a_deletion_is_marked(topics: TopicStore) -> None:
    topics.create("orders", ORDERS_ID, [LED], {})
    assert not topics.is_marked_deleted("orders")
    topics.mark_deleted("orders", ORDERS_ID)
    topics.mark_deleted("orders", ORDERS_ID)
    assert topics.is_marked_deleted("orders")
    assert (topics.marked_deleted(), topics.names()) == (["orders"], ["orders"])


def test_only_the_topic_with_the_id_is_marked_as_deleted(topics: TopicStore) -> None:
    topics.create("orders", ORDERS_ID, [LED], {})
    topics.mark_deleted("orders", UUID(int=1))
    topics.mark_deleted("gone", ORDERS_ID)
    assert topics.marked_deleted() == []


def test_an_added_topic_has_no_leader_yet(topics: TopicStore, store: SqliteStore) -> None:
    topics.add("orders", ORDERS_ID, [(1, 2), (2, 1)], {"retention.ms": "9"})
    topic = topics.load("orders")
    assert topic.partitions == tuple(without_leader(ReplicaAssignment(replicas=each)) for each in [(1, 2), (2, 1)])
    assert topic.config.retention_ms == 9
    assert store.children("/brokers/topics/orders") == []
    with pytest.raises(NodeExists):
        topics.add("orders", ORDERS_ID, [(1,)], {})
    assert topics.load("orders") == topic


def test_a_configuration_left_behind_is_not_the_new_topics(topics: TopicStore, store: SqliteStore) -> None:
    store.create("/config/topics/orders", b'{"version": 1, "config": {"retention.ms": "9"}}')
    topics.add("orders", ORDERS_ID, [(1,)], {})
    assert topics.load("orders").overrides == {}


def test_an_assignment_is_changed_only_as_it_was_read(topics: TopicStore) -> None:
    topics.add("orders", ORDERS_ID, [(1, 2)], {})
    read = topics.load_assignment("orders")
    partitions = (ReplicaAssignment(replicas=(1, 2)).reassign_to((3, 1)), ReplicaAssignment(replicas=(1,)))
    moving = structs.replace(read, partitions=partitions)
    version = topics.set_assignment("orders", moving)
    assert topics.load_assignment("orders") == structs.replace(moving, version=version)
    with pytest.raises(BadVersion):
        topics.set_assignment("orders", read)


def test_unknown_keys_are_left_out_of_a_topics_configuration(topics: TopicStore) -> None:
    topics.add("orders", ORDERS_ID, [(1,)], {"remote.storage.enable": "true", "retention.ms": "9", "segment.ms": "no"})
    config = topics.load("orders").config
    assert (config.retention_ms, config.segment_ms) == (9, TopicConfig().segment_ms)


def test_a_changed_configuration_leaves_a_notice() -> None:
    store = MemoryStore(MemoryTree())
    topics = TopicStore(store, TopicConfig())
    topics.make_paths()
    topics.add("orders", ORDERS_ID, [(1,)], {"retention.ms": "9"})
    assert topics.change_overrides("orders", lambda now: {**now, "segment.ms": "8"}) == topics.load_overrides("orders")
    topics.change_broker_overrides(3, lambda _: {"a": "1"})
    topics.change_broker_overrides(3, lambda now: {**now, "b": "2"})
    topics.change_broker_overrides(ALL_BROKERS, lambda _: {"c": "3"})
    assert topics.load_overrides("orders") == {"retention.ms": "9", "segment.ms": "8"}
    assert topics.load_broker_overrides() == {3: {"a": "1", "b": "2"}, ALL_BROKERS: {"c": "3"}}
    changes = [store.get(f"{CONFIG_CHANGES}/{name}").data for name in store.children(CONFIG_CHANGES)]
    assert [decode_config_change(data) for data in changes] == [
        "topics/orders", "brokers/3", "brokers/3", "brokers/<default>",
    ]  # fmt: skip


def test_a_change_is_derived_from_the_present_configuration() -> None:
    store = MemoryStore(MemoryTree())
    topics = TopicStore(store, TopicConfig())
    topics.make_paths()
    topics.add("orders", ORDERS_ID, [(1,)], {})
    tries = []

    def add_b_while_another_adds_a(now: Mapping[str, str]) -> Mapping[str, str]:
        if not tries:
            store.set("/config/topics/orders", b'{"version": 1, "config": {"a": "1"}}')
        tries.append(now)
        return {**now, "b": "2"}

    assert topics.change_overrides("orders", add_b_while_another_adds_a) == {"a": "1", "b": "2"}
    assert tries == [{}, {"a": "1"}]


def lose_config(store: MemoryStore) -> None:
    topics = TopicStore(store, TopicConfig())
    topics.make_paths()
    topics.create("orders", ORDERS_ID, [LED], {})
    store.delete("/config/topics/orders")


def restore_configs(store: MemoryStore) -> None:
    """As each start of a broker does."""
    topics = TopicStore(store, TopicConfig())
    for name in topics.unconfigured():
        topics.restore_overrides(name, {"retention.ms": "-1"})
    topics.restore_broker_overrides("1", {"log.retention.ms": "-1"}, replaces=False)


def test_lost_configurations_are_restored_though_a_broker_dies_meanwhile() -> None:
    deaths = 0
    for store in dying_after_each_write(lose_config, restore_configs):
        deaths += 1
        restore_configs(store)
        topics = TopicStore(store, TopicConfig())
        assert topics.load_overrides("orders") == {"retention.ms": "-1"}
        assert topics.load_broker_overrides() == {1: {"log.retention.ms": "-1"}}
        notices = [store.get(f"{CONFIG_CHANGES}/{each}").data for each in store.children(CONFIG_CHANGES)]
        assert {*map(decode_config_change, notices)} == {"topics/orders", "brokers/1"}
    assert deaths


def test_a_change_of_a_configuration_is_notified_with_it() -> None:
    """Another attempt may find nothing to change."""
    for store in dying_after_each_write(
        lambda store: TopicStore(store, TopicConfig()).make_paths(),
        lambda store: TopicStore(store, TopicConfig()).change_broker_overrides(1, lambda _: {"log.retention.ms": "5"}),
    ):
        changed = TopicStore(store, TopicConfig()).load_broker_overrides()
        assert bool(store.children(CONFIG_CHANGES)) == bool(changed)
