import asyncio
from uuid import UUID

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.errors import StaleControllerEpoch
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.messages import TopicState, UpdateMetadata
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo, PartitionInfo


def broker(broker_id: int) -> BrokerInfo:
    return BrokerInfo(broker_id=broker_id, grpc_address=f"b{broker_id}:1", listeners={}, rack="", version="0")


def state(name: str, leader: int = 1, *, topic_id: int = 1, **overrides: str) -> TopicState:
    info = PartitionInfo(leader=leader, leader_epoch=3, replicas=(1, 2), in_sync_replicas=(1,))
    overrides = {key.replace("_", "."): value for key, value in overrides.items()}
    return TopicState(name=name, topic_id=UUID(int=topic_id), partitions=(info,), overrides=overrides)


def update(*topics: TopicState, epoch: int = 1, brokers: tuple[int, ...] = (2, 1), **fields: object) -> UpdateMetadata:
    return UpdateMetadata(
        controller_id=1,
        controller_epoch=epoch,
        broker_epoch=0,
        brokers=tuple(map(broker, brokers)),
        topics=topics,
        **fields,
    )


def test_the_cache_has_the_controllers_last_update() -> None:
    cache = MetadataCache()
    cache.update(update(state("orders"), state("flights", topic_id=2)))
    assert [topic.name for topic in cache] == ["flights", "orders"]
    assert (cache.controller, list(cache.brokers)) == (broker(1), [1, 2])
    assert cache.leader_of(TopicPartition("orders", 0)) == broker(1)
    cache.update(update(state("orders", leader=2), brokers=(1,)))
    assert cache.leader_of(TopicPartition("orders", 0)) is None
    assert cache.leader_of(TopicPartition("orders", 1)) is None
    assert "flights" in cache


def test_topics_are_removed_by_name_or_by_a_full_update() -> None:
    cache = MetadataCache()
    cache.update(update(state("a"), state("b", topic_id=2), state("c", topic_id=3)))
    assert [topic.name for topic in cache.update(update(deleted=("a", "unknown"))).removed] == ["a"]
    assert [topic.name for topic in cache.update(update(state("c", topic_id=3), is_full=True)).removed] == ["b"]
    assert [topic.name for topic in cache] == ["c"]
    assert cache.find_by_id(UUID(int=2)) is None


def test_a_topic_deleted_and_made_again_in_one_update_has_its_new_id() -> None:
    cache = MetadataCache()
    cache.update(update(state("a")))
    change = cache.update(update(state("a", topic_id=9), deleted=("a",)))
    assert (len(change.removed), len(change.put), change.reconfigured) == (1, 1, ())
    assert cache.find_name(UUID(int=9)) == "a"
    assert cache.find_name(UUID(int=1)) is None


def test_a_deposed_controller_changes_nothing() -> None:
    cache = MetadataCache()
    cache.update(update(state("a"), epoch=5))
    with pytest.raises(StaleControllerEpoch):
        cache.update(update(epoch=4, is_full=True))
    assert "a" in cache


def test_a_copy_that_comes_after_a_later_request_changes_nothing_and_the_last_may_come_twice() -> None:
    cache = MetadataCache()
    cache.update(update(state("a"), number=1))
    cache.update(update(state("a", leader=2), number=2))
    with pytest.raises(StaleControllerEpoch):
        cache.update(update(state("a"), number=1))
    cache.update(update(state("a", leader=2), number=2))
    assert cache.leader_of(TopicPartition("a", 0)) == broker(2)
    cache.update(update(state("a"), epoch=2, number=1))
    assert cache.leader_of(TopicPartition("a", 0)) == broker(1)


def test_an_update_returns_the_topics_with_changed_configurations() -> None:
    cache = MetadataCache()
    assert cache.update(update(state("a", retention_ms="5"))).reconfigured == ()
    assert cache.update(update(state("a", retention_ms="5"))).reconfigured == ()
    (topic,) = cache.update(update(state("a", retention_ms="6"))).reconfigured
    assert topic.config.retention_ms == 6


def test_a_brokers_own_keys_override_those_of_all_brokers() -> None:
    cache = MetadataCache()
    cache.update(update(broker_overrides={-1: {"a": "1", "b": "1"}, 2: {"b": "2"}}))
    assert cache.broker_overrides(2) == {"a": "1", "b": "2"}
    assert cache.broker_overrides(1) == {"a": "1", "b": "1"}


async def test_a_wait_ends_with_the_update_that_makes_it_true() -> None:
    cache = MetadataCache()
    waiting = asyncio.create_task(cache.wait_until(lambda: "b" in cache, 60_000))
    await asyncio.sleep(0)
    cache.update(update(state("a")))
    cache.update(update(state("b", topic_id=2)))
    assert await waiting
    assert not await cache.wait_until(lambda: "c" in cache, 1)


def test_the_version_changes_with_topics_and_partition_counts_only() -> None:
    cache = MetadataCache()
    cache.update(update(state("a")))
    seen = cache.version
    cache.update(update(state("a", leader=2)))
    assert cache.version == seen
    cache.update(update(deleted=("a",)))
    assert cache.version > seen


def test_topics_follow_the_defaults_that_are_set_for_brokers() -> None:
    config = DynamicConfig(BrokerConfig(broker_id=2))
    cache = MetadataCache(config)
    cache.update(update(state("a"), state("b", topic_id=2, retention_ms="5")))
    told: list[int] = []
    config.subscribe(lambda current: told.append(current.topic_defaults.retention_ms))

    change = cache.update(update(broker_overrides={-1: {"log.retention.ms": "7"}, 3: {"log.retention.ms": "8"}}))
    assert [(topic.name, topic.config.retention_ms) for topic in change.reconfigured] == [("a", 7)]
    assert (cache.get("a").config.retention_ms, cache.get("b").config.retention_ms) == (7, 5)

    own = {-1: {"log.retention.ms": "7"}, 2: {"log.retention.ms": "9"}}
    change = cache.update(update(state("c", topic_id=3), state("a", leader=2), broker_overrides=own))
    assert {topic.name: topic.config.retention_ms for topic in change.reconfigured} == {"a": 9, "c": 9}
    assert cache.get("a").partitions[0].leader == 2

    cache.update(update(broker_overrides=own))
    assert cache.update(update()).reconfigured
    assert cache.get("a").config == cache.get("c").config == TopicConfig()
    assert told == [TopicConfig().retention_ms, 7, 9, TopicConfig().retention_ms]
