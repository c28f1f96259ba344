"""Consumers read from a replica in their own rack, over both listeners, and from the leader after its loss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition as KafkaPartition

from sparklog.base.cluster_config import broker_settings, cluster_defaults
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from sparklog.testing.broker import parsed
from sparklog.testing.cluster import RunningCluster
from support.patience import PATIENCE_MS, PATIENCE_S

pytestmark = pytest.mark.slow
RACKS = {1: "a", 2: "b", 3: "c"}
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Three brokers in three racks."""
    folder: Path = tmp_path_factory.mktemp("racks")
    keys = {
        "log.dirs": str(folder),
        "grpc.listener": "127.0.0.1:0",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "replica.selector.class": RACK_AWARE,
        "offsets.topic.num.partitions": "1",
        **cluster_defaults(3),
    }
    shared = parsed("test", keys, {})
    configs = {
        number: parsed("test", keys, {**broker_settings(shared, number), "broker.rack": rack})
        for number, rack in RACKS.items()
    }
    with RunningCluster.start(configs, folder, keep_data=True) as running:
        yield running


def fill(cluster: RunningCluster, topic: str, values: list[bytes]) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush()


def create(cluster: RunningCluster, topic: str, values: list[bytes]) -> tuple[int, int]:
    """A new topic of one partition with these records; returns its leader, and a broker in another rack."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=1)
    fill(cluster, topic, values)
    leader = cluster.leader_of(topic)
    return leader, leader % 3 + 1


def bytes_sent(cluster: RunningCluster, topic: str) -> dict[int, int]:
    """Bytes sent to consumers, by broker."""
    return {number: node.broker.metrics.topics[topic].bytes_out for number, node in cluster.nodes.items()}


def take(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        records = consumer.poll(PATIENCE_MS)
        assert records, f"{len(found)} of {count} records have come"
        found += [record.value for record in records]
    return found


def test_our_consumer_reads_in_its_rack_and_from_the_leader_when_that_replica_is_gone(cluster: RunningCluster) -> None:
    leader, near = create(cluster, "near", [b"1", b"2"])
    with Consumer(
        bootstrap_servers=cluster.bootstrap,
        client_rack=RACKS[near],
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    ) as consumer:
        consumer.assign([TopicPartition("near", 0)])
        assert take(consumer, 2) == [b"1", b"2"]
        sent = bytes_sent(cluster, "near")
        assert sent.pop(near) > 0
        assert set(sent.values()) == {0}
        cluster.stop_broker(near)
        fill(cluster, "near", [b"3"])
        assert take(consumer, 1) == [b"3"]
        assert bytes_sent(cluster, "near")[leader] > 0
        cluster.start_broker(near)


def test_who_says_no_rack_reads_from_the_leader(cluster: RunningCluster) -> None:
    leader, _ = create(cluster, "far", [b"1"])
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("far", 0)])
        assert take(consumer, 1) == [b"1"]
    sent = bytes_sent(cluster, "far")
    assert sent.pop(leader) > 0
    assert set(sent.values()) == {0}


def test_librdkafka_reads_in_its_rack(cluster: RunningCluster) -> None:
    _, near = create(cluster, "wire", [b"1", b"2"])
    consumer = KafkaConsumer(
        {
            "bootstrap.servers": cluster.kafka,
            "client.rack": RACKS[near],
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([KafkaPartition("wire", 0, 0)])
    found = [message.value() for message in consumer.consume(2, timeout=PATIENCE_S)]
    consumer.close()
    assert found == [b"1", b"2"]
    sent = bytes_sent(cluster, "wire")
    assert sent.pop(near) > 0
    assert set(sent.values()) == {0}
