"""The admin client against a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.base.errors import (
    ConfigError,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopic,
    NetworkException,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, ListedOffset, Producer
from sparklog.client.aio import AsyncAdmin
from sparklog.testing import RunningBroker

pytestmark = pytest.mark.slow

ZERO = TopicPartition("t", 0)


def test_topics_are_created_listed_described_and_deleted(admin: Admin) -> None:
    assert admin.create_topic("t", partitions=3, configs={"retention.ms": "1000"}) == 3
    assert admin.create_topic("s") == 1

    assert [(topic.name, topic.partitions, topic.internal) for topic in admin.list_topics()] == [
        ("s", 1, False), ("t", 3, False),
    ]  # fmt: skip
    [topic] = admin.describe_topics(["t"])
    assert topic.configs == {"retention.ms": "1000"}
    assert [(part.partition, part.leader, part.replicas, part.in_sync_replicas) for part in topic.partitions] == [
        (number, 0, (0,), (0,)) for number in range(3)
    ]
    admin.delete_topics(["s", "t"])
    assert admin.list_topics() == []
    assert admin.describe_topics([]) == []


def test_what_cannot_be_created_says_why(admin: Admin) -> None:
    admin.create_topic("t")
    with pytest.raises(TopicAlreadyExists):
        admin.create_topic("t")
    with pytest.raises(InvalidTopic):
        admin.create_topic("no/such")
    with pytest.raises(InvalidPartitions):
        admin.create_topic("u", partitions=0)
    with pytest.raises(InvalidReplicationFactor):
        admin.create_topic("u", replication_factor=3)
    with pytest.raises(InvalidConfig, match=r"did you mean retention\.ms"):
        admin.create_topic("u", configs={"retenton.ms": "1"})

    assert [topic.name for topic in admin.list_topics()] == ["t"]


def test_validating_creates_nothing(admin: Admin) -> None:
    admin.create_topic("t", partitions=2, validate_only=True)
    assert admin.list_topics() == []


def test_a_topic_that_is_not_there_is_an_error_at_once(admin: Admin) -> None:
    for call in (
        lambda: admin.describe_topics(["nope"]),
        lambda: admin.delete_topics(["nope"]),
        lambda: admin.create_partitions("nope", 2),
        lambda: admin.describe_configs(topic="nope"),
        lambda: admin.alter_configs("nope", set={"retention.ms": "1"}),
    ):
        with pytest.raises(UnknownTopicOrPartition):
            call()
    assert admin.list_topics() == []


def test_topics_grow_and_never_shrink(admin: Admin) -> None:
    admin.create_topic("t", partitions=2)
    admin.create_partitions("t", 5, validate_only=True)
    assert len(admin.describe_topics(["t"])[0].partitions) == 2

    admin.create_partitions("t", 5)

    assert len(admin.describe_topics(["t"])[0].partitions) == 5
    with pytest.raises(InvalidPartitions):
        admin.create_partitions("t", 4)


def test_configs_are_set_and_unset_key_by_key(admin: Admin) -> None:
    admin.create_topic("t", configs={"retention.ms": "1000"})

    admin.alter_configs("t", set={"segment.bytes": "2097152"}, unset=["retention.ms"])

    configs = admin.describe_configs(topic="t")
    assert (configs["segment.bytes"].value, configs["segment.bytes"].source) == ("2097152", "topic")
    assert (configs["retention.ms"].value, configs["retention.ms"].source) == ("604800000", "default")
    assert configs["retention.ms"].documentation
    with pytest.raises(InvalidConfig, match="it must be a whole number"):
        admin.alter_configs("t", set={"segment.bytes": "many"})


def test_a_broker_tells_its_configuration(admin: Admin) -> None:
    assert admin.describe_configs(broker=0)["num.partitions"].value == "1"
    with pytest.raises(ConfigError, match="one of the two"):
        admin.describe_configs()


def test_records_are_deleted_up_to_an_offset(
    admin: Admin, new_producer: Callable[..., Producer], new_consumer: Callable[..., Consumer]
) -> None:
    admin.create_topic("t", partitions=2)
    producer = new_producer()
    for number in range(10):
        producer.send("t", b"%d" % number, partition=0)
    producer.flush()

    assert admin.delete_records({ZERO: 4}) == {ZERO: 4}
    assert new_consumer().beginning_offsets([ZERO]) == {ZERO: 4}
    with pytest.raises(OffsetOutOfRange):
        admin.delete_records({ZERO: 11})
    assert admin.delete_records({ZERO: -1, TopicPartition("t", 1): -1}) == {ZERO: 10, TopicPartition("t", 1): 0}
    with pytest.raises(UnknownTopicOrPartition):
        admin.delete_records({TopicPartition("t", 9): 0})


def test_offsets_are_listed_by_position_and_time(admin: Admin, new_producer: Callable[..., Producer]) -> None:
    admin.create_topic("t")
    producer = new_producer()
    for timestamp_ms in (10, 30, 20):
        producer.send("t", b"v", timestamp_ms=timestamp_ms)
    producer.flush()

    assert admin.list_offsets({ZERO: "earliest"}) == {ZERO: ListedOffset(0, -1)}
    assert admin.list_offsets({ZERO: "latest"}) == {ZERO: ListedOffset(3, -1)}
    assert admin.list_offsets({ZERO: "max_timestamp"}) == {ZERO: ListedOffset(1, 30)}
    assert admin.list_offsets({ZERO: 11}) == {ZERO: ListedOffset(1, 30)}
    assert admin.list_offsets({ZERO: 31}) == {ZERO: ListedOffset(-1, -1)}


def test_the_cluster_and_its_disks_are_described(admin: Admin, sparklog_broker: RunningBroker) -> None:
    admin.create_topic("t", partitions=2)
    admin.create_topic("u")

    cluster = admin.describe_cluster()
    [broker] = cluster.brokers
    assert (cluster.controller_id, broker.id, broker.grpc_address) == (0, 0, sparklog_broker.bootstrap)
    [folder] = admin.describe_log_dirs(["t"])[0]
    assert Path(folder.path) == sparklog_broker.data_dir.resolve()
    assert [(part.topic, part.partition) for part in folder.partitions] == [("t", 0), ("t", 1)]
    assert len(admin.describe_log_dirs()[0][0].partitions) == 3


async def test_on_an_event_loop_calls_are_awaited(sparklog_broker: RunningBroker) -> None:
    async with AsyncAdmin(bootstrap_servers=sparklog_broker.bootstrap) as admin:
        await admin.create_topic("t")
        assert [topic.name for topic in await admin.list_topics()] == ["t"]


def test_the_next_bootstrap_server_is_asked_where_one_does_not_answer(sparklog_broker: RunningBroker) -> None:
    with Admin(bootstrap_servers=["127.0.0.1:1", sparklog_broker.bootstrap]) as admin:
        assert admin.list_topics() == []


def test_where_no_broker_answers_the_error_names_the_address() -> None:
    with (
        Admin(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=1_000) as admin,
        pytest.raises(NetworkException, match=r"no broker answers at 127\.0\.0\.1:1 \(Connection refused\)"),
    ):
        admin.list_topics()


def test_partitions_that_cannot_move_say_why(admin: Admin) -> None:
    admin.create_topic("t")
    refused = admin.alter_partition_reassignments({ZERO: [0], TopicPartition("u", 0): [0]})
    assert {item: error.name for item, error in refused.items()} == {
        TopicPartition("u", 0): "UNKNOWN_TOPIC_OR_PARTITION"
    }
    assert {error.name for error in admin.alter_partition_reassignments({ZERO: [7]}).values()} == {
        "INVALID_REPLICA_ASSIGNMENT"
    }
    assert {error.name for error in admin.alter_partition_reassignments({ZERO: None}).values()} == {
        "NO_REASSIGNMENT_IN_PROGRESS"
    }
    assert admin.list_partition_reassignments() == {}
    assert admin.list_partition_reassignments([ZERO]) == {}


def test_an_election_that_is_not_needed_is_told_where_it_was_asked_for_by_name(admin: Admin) -> None:
    admin.create_topic("t")
    [(item, error)] = admin.elect_leaders([ZERO]).items()
    assert (item, error and error.name) == (ZERO, "ELECTION_NOT_NEEDED")
    assert admin.elect_leaders() == {}
    assert admin.elect_leaders(unclean=True) == {}


def test_a_brokers_rates_are_changed_while_it_runs(admin: Admin) -> None:
    key = "leader.replication.throttled.rate"
    admin.alter_broker_configs(0, set={key: "1000"})
    assert admin.describe_configs(broker=0)[key].value == "1000"
    admin.alter_broker_configs(0, unset=[key])
    assert admin.describe_configs(broker=0)[key].source == "default"
