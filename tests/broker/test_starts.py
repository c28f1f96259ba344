"""Starts of a broker: with a session of its earlier process, an old store, or unknown folders."""

from __future__ import annotations

import json
from contextlib import suppress
from uuid import UUID

import pytest

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.broker.apis import list_offsets
from sparklog.cluster.memory import MemoryStore
from sparklog.cluster.model import PartitionInfo
from sparklog.cluster.store import Delete, ensure_path, subtree
from sparklog.cluster.topics import TopicStore
from sparklog.testing.memory_fs import PowerCut
from support.brokers.on_one_loop import BrokersOnOneLoop

T0 = TopicPartition("t", 0)


@pytest.fixture
async def one():
    made = BrokersOnOneLoop(default_replication_factor="1", offsets_topic_replication_factor="1")
    yield made
    await made.stop_all()


async def test_a_killed_broker_leads_again_at_once_though_its_session_lasts(one: BrokersOnOneLoop, batch) -> None:
    await one.start(1)
    await one.create("t", [[1]])
    await one.produce(1, T0, batch([b"a"]))
    killed = one.kill(1)
    await one.start(1)
    assert (await one.produce(1, T0, batch([b"b"]))).error is None
    assert one.brokers[1].services.controller.is_active
    with suppress(PowerCut):
        await killed.stop()


async def test_a_store_from_before_there_were_controllers_is_taken_over(one: BrokersOnOneLoop, batch) -> None:
    store = MemoryStore(one.tree)
    topics = TopicStore(store, TopicConfig())
    topics.make_paths()
    info = PartitionInfo(leader=1, leader_epoch=7, replicas=(1,), in_sync_replicas=(1,))
    topics.create("t", UUID(int=5), [info], {"retention.ms": "9"})
    ensure_path(store, "/brokers/ids/1")  # not ephemeral, as it was
    store.set("/brokers/ids/1", json.dumps({"version": 5, "endpoints": ["GRPC://here:1"], "rack": ""}).encode())

    await one.start(1)

    assert (await one.produce(1, T0, batch([b"a"]))).error is None
    topic = one.brokers[1].services.metadata.get("t")
    assert (topic.topic_id, topic.config.retention_ms) == (UUID(int=5), 9)
    assert topic.partitions[0].leader_epoch > 7


async def test_the_earliest_offset_has_the_epoch_of_the_record_there(one: BrokersOnOneLoop, batch) -> None:
    """Not the current leader epoch: a reader that begins there would use an epoch that the record does not have."""
    query = list_offsets.PartitionOffsetQuery(topic="t", partition=0, position=list_offsets.EARLIEST)
    epochs = []
    await one.start(1)
    await one.create("t", [[1]])
    for _ in range(3):
        await one.produce(1, T0, batch([b"a"]))
        request = list_offsets.ListOffsetsRequest(partitions=[query])
        [found] = (await one.brokers[1].serve(list_offsets.API, request)).partitions
        epochs.append((found.offset, found.leader_epoch))
        await one.stop(1)
        await one.start(1)
    first = one.brokers[1].services.replicas.get(T0).log.epochs.entries[0].epoch
    assert epochs == [(0, first)] * 3
    assert one.brokers[1].services.replicas.get(T0).partition.leader_epoch > first


async def test_unknown_folders_are_adopted_by_a_single_broker(one: BrokersOnOneLoop, batch) -> None:
    await one.start(1)
    await one.create("t", [[1]])
    await one.produce(1, T0, batch([b"a"]))
    epoch = one.brokers[1].services.replicas.get(T0).partition.leader_epoch
    topic_id = one.brokers[1].services.metadata.get("t").topic_id
    await one.stop(1)
    one.lose_store()
    await one.start(1)
    topic = one.brokers[1].services.metadata.get("t")
    assert (topic.topic_id, topic.partitions[0].leader_epoch > epoch) == (topic_id, True)
    assert b"a" in await one.read(1, T0)


async def test_unknown_folders_stay_if_other_brokers_are_registered(one: BrokersOnOneLoop, batch) -> None:
    await one.start(1)
    await one.create("t", [[1]])
    await one.produce(1, T0, batch([b"a"]))
    await one.stop(1)
    store = MemoryStore(one.tree)
    store.multi(Delete(path) for path in subtree(store, "/brokers/topics/t"))
    one.disk(1).remove("/data/topic-config-checkpoint")  # nothing tells whether the store has ever had the topic
    await one.start(2)
    await one.start(1)
    assert "t" not in one.brokers[1].services.metadata
    assert "t-0" in one.folders(1)


@pytest.mark.slow
async def test_a_second_broker_of_the_same_id_does_not_start(one: BrokersOnOneLoop) -> None:
    await one.start(1)
    first = one.brokers.pop(1)
    one.new_disk(1)
    with pytest.raises(ConfigError, match=r"broker\.id = 1"):
        await one.start(1, cluster_store_session_timeout_ms="100")
    await one.brokers.pop(1).stop()
    one.brokers[1] = first
