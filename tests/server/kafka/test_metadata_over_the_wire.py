"""Metadata of brokers and topics in special cases."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from sparklog.base.ids import TopicPartition
from sparklog.testing import RunningBroker, start_broker
from support.kafka.connection import Wire
from support.kafka.topic import METADATA, Topic, ask_metadata, make_batch

VERSION = 12
CLUSTER = 60


def named(*names: str) -> list[dict[str, object]]:
    return [{"name": name, "topic_id": None} for name in names]


def test_a_client_is_told_the_addresses_of_the_listener_it_came_by() -> None:
    with start_broker(
        listeners=("INSIDE://127.0.0.1:0", "OUTSIDE://localhost:0"),
        listener_security_protocol_map=("INSIDE:PLAINTEXT", "OUTSIDE:PLAINTEXT"),
        broker_id=7,
        broker_rack="r1",
    ) as broker:
        for address in broker.node.kafka_addresses.values():
            with Wire(address) as wire:
                (found,) = ask_metadata(wire, VERSION, ()).brokers
                assert (found.node_id, found.host, found.port, found.rack) == (7, *address, "r1")
                fields = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
                assert [each.port for each in wire.send(CLUSTER, 2, **fields).brokers] == [address.port]


def test_topics_are_created_for_who_asks(kafka_broker: RunningBroker, wire: Wire, new_name) -> None:
    name, other = new_name(), new_name()
    (found,) = ask_metadata(wire, VERSION, named(name)).topics
    assert (found.error_code, len(found.partitions)) == (ErrorCode.none, 1)
    (found,) = ask_metadata(wire, 0, named(other)).topics
    assert found.error_code == ErrorCode.none
    assert {name, other} <= {topic.name for topic in kafka_broker.node.broker.services.metadata}


def test_internal_topics_and_impossible_ones_are_not_created(wire: Wire) -> None:
    internal, impossible = ask_metadata(wire, VERSION, named("__cluster_history", "a b")).topics
    assert internal.error_code == ErrorCode.unknown_topic_or_partition
    assert impossible.error_code == ErrorCode.invalid_topic_exception


def test_nothing_is_created_where_the_broker_does_not_want_it(new_name) -> None:
    with start_broker(kafka=True, auto_create_topics_enable=False) as broker:
        (address,) = broker.node.kafka_addresses.values()
        with Wire(address) as wire:
            (found,) = ask_metadata(wire, VERSION, named("t")).topics
            assert found.error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", [0, 5, 12])
def test_a_partition_whose_disk_failed(kafka_broker: RunningBroker, wire: Wire, new_name, version: int) -> None:
    name = new_name()
    services = kafka_broker.node.broker.services
    kafka_broker.run(services.topics.create(name, partitions=2))

    async def fail() -> None:
        services.replicas.set_offline(TopicPartition(name, 1), "the disk failed")

    kafka_broker.run(fail())
    (found,) = ask_metadata(wire, version, named(name)).topics
    good, bad = found.partitions
    assert (good.error_code, good.leader_id) == (ErrorCode.none, 0)
    assert (bad.error_code, bad.leader_id, bad.replica_nodes) == (ErrorCode.leader_not_available, -1, (0,))
    if version >= 5:
        assert bad.offline_replicas == (0,)
    refused = Topic(wire, name).produce(VERSION, make_batch(b"a"), partition=1)
    assert refused.error_code == ErrorCode.kafka_storage_error


def test_a_request_that_is_refused_names_its_topics(wire: Wire) -> None:
    asked = [{"name": None, "topic_id": None}, *named("t")]
    response = wire.send(
        METADATA, 11, topics=asked, include_topic_authorized_operations=False,
    )  # fmt: skip
    assert [topic.error_code for topic in response.topics] == [ErrorCode.invalid_request] * 2
