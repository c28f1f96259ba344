"""A change is in the next answer of a broker, in spite of its cache of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from sparklog.base.ids import TopicPartition
from sparklog.testing import RunningBroker, RunningCluster, start_cluster
from support.kafka.connection import Wire
from support.kafka.topic import CLUSTER, ask_metadata
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

FIND_COORDINATOR, DESCRIBE_CONFIGS = 10, 32
OFTEN = 3
NewName = Callable[[], str]


class Client:
    """librdkafka's admin client. It repeats each request, so that the broker has a cached answer."""

    def __init__(self, bootstrap: str) -> None:
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def find(self, name: str) -> TopicMetadata | None:
        """The description of a topic, also within that of all topics; None for a missing topic."""
        of_all = [self.admin.list_topics(timeout=PATIENCE_S).topics.get(name) for _ in range(OFTEN)]
        if not any(of_all):  # a request for the topic would create it
            return None
        found = [self.admin.list_topics(name, PATIENCE_S).topics[name] for _ in range(OFTEN)]
        assert len({len(each.partitions) if each else 0 for each in (*found, *of_all)}) == 1
        return found[0]

    def create(self, name: str, partitions: int = 1) -> None:
        self.admin.create_topics([NewTopic(name, partitions)])[name].result(PATIENCE_S)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(PATIENCE_S)

    def grow(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(PATIENCE_S)

    def value(self, kind: ResourceType, name: str, key: str) -> tuple[str, int]:
        """The value of a key, and its source."""
        resource = ConfigResource(kind, name)
        found = [self.admin.describe_configs([resource])[resource].result(PATIENCE_S)[key] for _ in range(OFTEN)]
        [one] = {(each.value, each.source) for each in found}
        return one

    def set(self, kind: ResourceType, name: str, key: str, value: str | None) -> None:
        do = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        resource = ConfigResource(kind, name, incremental_configs=[ConfigEntry(key, value, incremental_operation=do)])
        self.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


@pytest.fixture
def client(kafka_bootstrap: str) -> Client:
    return Client(kafka_bootstrap)


def test_topics_that_come_grow_and_go(client: Client, new_name: NewName) -> None:
    name = new_name()
    assert client.find(name) is None
    client.create(name)
    assert _partitions(client.find(name)) == 1
    client.grow(name, 3)
    assert _partitions(client.find(name)) == 3
    client.delete(name)
    assert client.find(name) is None
    client.create(name, 2)
    assert _partitions(client.find(name)) == 2


def _partitions(topic: TopicMetadata | None) -> int:
    assert topic
    return len(topic.partitions)


def test_a_topic_that_is_made_again_has_another_id(client: Client, wire: Wire, new_name: NewName) -> None:
    name = new_name()

    def topic_id() -> Any:
        [one] = {ask_metadata(wire, 12, [{"name": name, "topic_id": None}]).topics[0].topic_id for _ in range(OFTEN)}
        return one

    client.create(name)
    before = topic_id()
    client.delete(name)
    client.create(name)
    assert topic_id() != before


def test_a_topic_that_is_asked_for_is_created_each_time(client: Client, wire: Wire, new_name: NewName) -> None:
    """Requests that create a topic are not cached."""
    name = new_name()
    for _ in range(3):
        for _ in range(OFTEN):
            [topic] = ask_metadata(wire, 9, [{"name": name}], allow_auto_topic_creation=True).topics
            assert (topic.error_code, len(topic.partitions)) == (0, 1)
        client.delete(name)


def test_configurations_of_topics_and_of_brokers(client: Client, new_name: NewName) -> None:
    name, key, of_broker = new_name(), "retention.ms", "log.retention.ms"
    topic, broker = ResourceType.TOPIC, ResourceType.BROKER
    client.create(name)
    default = client.value(topic, name, key)
    client.set(topic, name, key, "111000")
    assert client.value(topic, name, key)[0] == "111000"
    client.set(topic, name, key, "222000")
    assert client.value(topic, name, key)[0] == "222000"
    client.set(topic, name, key, None)
    assert client.value(topic, name, key) == default
    before = client.value(broker, "0", of_broker)
    client.set(broker, "0", of_broker, "333000")
    try:
        assert client.value(broker, "0", of_broker)[0] == client.value(topic, name, key)[0] == "333000"
    finally:
        client.set(broker, "0", of_broker, None)
    assert (client.value(broker, "0", of_broker), client.value(topic, name, key)) == (before, default)


def test_subscriptions_to_client_metrics(kafka_bootstrap: str, wire: Wire, new_name: NewName) -> None:
    """They are only in the cluster store."""
    name, resource = new_name(), {"resource_type": 16, "configuration_keys": ["interval.ms"]}
    alter = {"config_operation": 0, "name": "interval.ms"}
    for interval_ms in ("1000", "2000"):
        change = {"resource_type": 16, "resource_name": name, "configs": [{**alter, "value": interval_ms}]}
        [altered] = wire.send(44, 1, resources=[change], validate_only=False).responses
        assert altered.error_code == 0
        for _ in range(OFTEN):
            [found] = wire.send(DESCRIBE_CONFIGS, 4, resources=[{**resource, "resource_name": name}]).results
            assert [each.value for each in found.configs] == [interval_ms]


def test_a_replica_that_cannot_be_used_and_can_again(
    kafka_broker: RunningBroker, client: Client, wire: Wire, new_name: NewName
) -> None:
    name = new_name()
    client.create(name)
    partition, replicas = TopicPartition(name, 0), kafka_broker.node.broker.services.replicas
    replica = replicas.get(partition)

    def offline() -> tuple[int, ...]:
        for _ in range(OFTEN):
            [topic] = ask_metadata(wire, 12, [{"name": name, "topic_id": None}]).topics
        return tuple(topic.partitions[0].offline_replicas)

    async def fail() -> None:
        replicas.set_offline(partition, "the disk failed")

    async def mend() -> None:
        replicas.put(partition, replica.log, replica.config, high_watermark=0)

    for _ in range(2):
        assert offline() == ()
        kafka_broker.run(fail())
        assert offline() == (0,)
        kafka_broker.run(mend())
    assert offline() == ()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with start_cluster(3, kafka=True, auto_leader_rebalance_enable=False) as running:
        yield running


class Seen:
    """The metadata of a broker for its clients."""

    def __init__(self, cluster: RunningCluster, broker_id: int) -> None:
        self.broker = cluster.nodes[broker_id].broker
        self.wire = Wire(cluster.nodes[broker_id].kafka_addresses["PLAINTEXT"])

    def partition(self, topic: str) -> tuple[int, set[int], set[int], set[int]]:
        """The leader, the ISR, the offline replicas, the live brokers."""
        for _ in range(OFTEN):
            found = ask_metadata(self.wire, 12, [{"name": topic, "topic_id": None}])
        [partition] = found.topics[0].partitions
        live = {each.node_id for each in found.brokers}
        return partition.leader_id, {*partition.isr_nodes}, {*partition.offline_replicas}, live

    def coordinator(self, group: str) -> int:
        for _ in range(OFTEN):
            [found] = self.wire.send(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group]).coordinators
        return int(found.node_id)

    def brokers(self) -> set[int]:
        for _ in range(OFTEN):
            found = self.wire.send(CLUSTER, 0, include_cluster_authorized_operations=False)
        return {each.broker_id for each in found.brokers}


def test_brokers_that_go_and_come(cluster: RunningCluster, new_name: NewName) -> None:
    name, group, everybody = new_name(), "g", {1, 2, 3}
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    wait_until(lambda: set(admin.list_topics(timeout=PATIENCE_S).brokers) == everybody, "all have come back")
    seen = [Seen(cluster, broker_id) for broker_id in (2, 3)]
    caches = [each.broker.metadata for each in seen]
    for cache in caches:
        wait_until(lambda cache=cache: set(cache.brokers) == everybody, "each broker knows the others")
    admin.create_topics([NewTopic(name, 1, replica_assignment=[[1, 2, 3]])])[name].result(PATIENCE_S)
    for each in seen:
        wait_until(lambda each=each: name in each.broker.metadata, "each broker knows the topic")
        wait_until(lambda each=each: each.coordinator(group) > 0, "there is a coordinator")
        assert each.partition(name) == (1, everybody, set(), everybody)
        assert each.brokers() == everybody
    cluster.stop_broker(1)
    for each, cache in zip(seen, caches, strict=True):
        leader, in_sync, offline, live = each.partition(name)
        assert leader == cache.get(name).partitions[0].leader in (2, 3)
        assert (in_sync <= {1, 2, 3}, offline, live) == (True, {1}, {2, 3})
        assert each.brokers() == {2, 3}
        assert each.coordinator(group) in (2, 3)
    cluster.start_broker(1)
    for each, cache in zip(seen, caches, strict=True):
        wait_until(lambda of=cache: len(of.get(name).partitions[0].in_sync_replicas) == 3, "all are in sync")
        assert each.partition(name)[1:] == (everybody, set(), everybody)
        assert each.brokers() == everybody
        each.wire.close()
