"""The admin clients of librdkafka, kafka-python and aiokafka, with all their calls for one broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka_python_errors
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import KafkaAdminClient
from kafka.admin import OffsetSpec as PythonOffsetSpec
from kafka.structs import OffsetAndMetadata

from sparklog.testing import RunningBroker
from support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

NewName = Callable[[], str]


@pytest.fixture(scope="module")
def python_admin(kafka_bootstrap: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    yield admin
    admin.close()


@pytest.fixture(scope="module")
def admin(kafka_bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_bootstrap})


@pytest.fixture
def filled(admin: AdminClient, kafka_bootstrap: str, new_name: NewName) -> str:
    """A topic of two partitions with ten records in the first."""
    name = new_name()
    done(admin.create_topics([NewTopic(name, 2, 1)]))
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(10):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.fixture
def group(kafka_bootstrap: str, filled: str) -> str:
    """A group that has read the topic, and left."""
    consumer = Consumer(
        {"bootstrap.servers": kafka_bootstrap, "group.id": f"of-{filled}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([filled])
    assert len(consumer.consume(10, PATIENCE_S)) == 10
    consumer.commit(asynchronous=False)
    consumer.close()
    return f"of-{filled}"


def done(futures: dict[Any, Any]) -> Any:
    """The result of the only future."""
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def refused(futures: dict[Any, Any]) -> str:
    with pytest.raises(KafkaException) as raised:
        done(futures)
    return str(raised.value.args[0].name())


# librdkafka


def test_librdkafka_manages_topics(admin: AdminClient, new_name: NewName) -> None:
    name = new_name()
    done(admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "1000"})]))
    assert refused(admin.create_topics([NewTopic(name, 2, 1)])) == "TOPIC_ALREADY_EXISTS"
    done(admin.create_partitions([NewPartitions(name, 3)]))
    assert refused(admin.create_partitions([NewPartitions(name, 3)])) == "INVALID_PARTITIONS"
    described = done(admin.describe_topics(TopicCollection([name]), include_authorized_operations=True))
    assert [(part.id, part.leader.id) for part in described.partitions] == [(0, 0), (1, 0), (2, 0)]
    assert described.authorized_operations
    assert str(described.topic_id) != ""
    assert len(admin.list_topics(name, PATIENCE_S).topics[name].partitions) == 3
    done(admin.delete_topics([name]))
    assert refused(admin.delete_topics([name])) == "UNKNOWN_TOPIC_OR_PART"


def test_librdkafka_assigns_replicas_by_hand(admin: AdminClient, new_name: NewName) -> None:
    name = new_name()
    done(admin.create_topics([NewTopic(name, 2, replica_assignment=[[0], [0]])]))
    assert len(admin.list_topics(name, PATIENCE_S).topics[name].partitions) == 2
    wrong = NewTopic(new_name(), 1, replica_assignment=[[7]])
    assert refused(admin.create_topics([wrong])) == "INVALID_REPLICA_ASSIGNMENT"


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")  # old programs use it all the same
def test_librdkafka_manages_configurations(admin: AdminClient, filled: str) -> None:
    def value(key: str) -> tuple[str, bool]:
        entry = done(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, filled)]))[key]
        return entry.value, entry.is_default

    def change(operation: AlterConfigOpType, key: str, text: str | None) -> ConfigResource:
        entry = ConfigEntry(key, text, incremental_operation=operation)
        return ConfigResource(ConfigResource.Type.TOPIC, filled, incremental_configs=[entry])

    assert value("cleanup.policy") == ("delete", True)
    done(admin.incremental_alter_configs([change(AlterConfigOpType.APPEND, "cleanup.policy", "compact")]))
    assert value("cleanup.policy") == ("delete,compact", False)
    done(admin.alter_configs([ConfigResource(ConfigResource.Type.TOPIC, filled, set_config={"retention.ms": "1000"})]))
    assert (value("cleanup.policy"), value("retention.ms")) == (("delete", True), ("1000", False))
    wrong = change(AlterConfigOpType.SET, "retention.ms", "soon")
    assert refused(admin.incremental_alter_configs([wrong])) == "INVALID_CONFIG"
    broker = done(admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "0")]))
    assert broker["broker.id"].is_read_only
    assert broker["log.retention.ms"].value == "604800000"


def test_librdkafka_deletes_records_and_lists_offsets(admin: AdminClient, filled: str) -> None:
    assert done(admin.delete_records([Partition(filled, 0, 4)])).low_watermark == 4
    first = done(admin.list_offsets({Partition(filled, 0): OffsetSpec.earliest()}))
    last = done(admin.list_offsets({Partition(filled, 0): OffsetSpec.latest()}))
    assert (first.offset, last.offset) == (4, 10)
    assert refused(admin.delete_records([Partition(filled, 0, 99)])) == "OFFSET_OUT_OF_RANGE"


def test_librdkafka_describes_the_cluster(admin: AdminClient, kafka_broker: RunningBroker) -> None:
    found = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE_S)
    assert found.cluster_id == kafka_broker.node.broker.services.cluster_id
    assert (found.controller.id, [node.id for node in found.nodes]) == (0, [0])


def test_librdkafka_manages_groups(admin: AdminClient, filled: str, group: str) -> None:
    listed = admin.list_consumer_groups().result(PATIENCE_S).valid
    assert (group, "EMPTY", "CLASSIC") in {(each.group_id, each.state.name, each.type.name) for each in listed}
    described = done(admin.describe_consumer_groups([group], include_authorized_operations=True))
    assert (described.state.name, described.members, described.coordinator.id) == ("EMPTY", [], 0)
    offsets = ConsumerGroupTopicPartitions(group, [Partition(filled, 0)])
    assert done(admin.list_consumer_group_offsets([offsets])).topic_partitions[0].offset == 10
    moved = ConsumerGroupTopicPartitions(group, [Partition(filled, 0, 3)])
    assert done(admin.alter_consumer_group_offsets([moved])).topic_partitions[0].error is None
    assert done(admin.list_consumer_group_offsets([offsets])).topic_partitions[0].offset == 3
    done(admin.delete_consumer_groups([group]))
    assert refused(admin.delete_consumer_groups([group])) == "GROUP_ID_NOT_FOUND"


# kafka-python


def test_kafka_python_manages_topics(python_admin: KafkaAdminClient, new_name: NewName) -> None:
    name = new_name()
    (created,) = python_admin.create_topics({name: {"num_partitions": 2, "configs": {"retention.ms": "1000"}}})[
        "topics"
    ]
    assert (created["num_partitions"], created["configs"]["retention.ms"]["value"]) == (2, "1000")
    with pytest.raises(kafka_python_errors.TopicAlreadyExistsError):
        python_admin.create_topics({name: {}})
    python_admin.create_partitions({name: 3})
    (described,) = python_admin.describe_topics([name])
    assert len(described["partitions"]) == 3
    (page,) = python_admin.describe_topic_partitions([name])["topics"]
    assert (page["name"], str(page["topic_id"])) == (name, created["topic_id"])
    assert name in python_admin.list_topics()
    python_admin.delete_topics([name])
    assert name not in python_admin.list_topics()


def test_kafka_python_manages_configurations(python_admin: KafkaAdminClient, filled: str) -> None:
    def modified() -> dict[str, Any]:
        found = python_admin.describe_configs([PythonConfigResource("TOPIC", filled)])
        return {key: entry["value"] for key, entry in found["topic"][filled].items()}

    python_admin.alter_configs([PythonConfigResource("TOPIC", filled, {"retention.ms": "1000"})])
    assert modified() == {"retention.ms": "1000"}
    python_admin.reset_configs([PythonConfigResource("TOPIC", filled, {"retention.ms": None})])
    assert modified() == {}
    listed = python_admin.list_config_resources()
    assert filled in listed["topic"]
    assert listed["broker"] == ["0"]


def test_kafka_python_describes_cluster_and_disks(
    python_admin: KafkaAdminClient, kafka_broker: RunningBroker, filled: str
) -> None:
    assert python_admin.describe_cluster()["cluster_id"] == kafka_broker.node.broker.services.cluster_id
    (broker,) = python_admin.describe_log_dirs()
    (log_dir,) = broker["log_dirs"]
    assert log_dir["log_dir"] == str(kafka_broker.data_dir)
    sizes = {topic["name"]: topic["partitions"][0]["partition_size"] for topic in log_dir["topics"]}
    assert sizes[filled] > 0


def test_kafka_python_deletes_records(python_admin: KafkaAdminClient, filled: str) -> None:
    partition = TopicPartition(filled, 0)
    assert python_admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
    assert python_admin.list_partition_offsets({partition: PythonOffsetSpec.EARLIEST})[partition].offset == 4


def test_kafka_python_manages_groups(python_admin: KafkaAdminClient, kafka_bootstrap: str, filled: str) -> None:
    group, partition = f"python-{filled}", TopicPartition(filled, 0)
    consumer = KafkaConsumer(filled, bootstrap_servers=kafka_bootstrap, group_id=group, auto_offset_reset="earliest")
    assert next(consumer).offset == 0
    consumer.commit()
    described = python_admin.describe_groups([group])[group]
    assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
    assert described["members"][0]["member_assignment"]["assigned_partitions"][0]["topic"] == filled
    consumer.close()
    assert group in {each["group_id"] for each in python_admin.list_groups(states_filter=["Empty"])}
    assert python_admin.list_group_offsets(group)[group][partition].offset == 1
    python_admin.alter_group_offsets(group, {partition: OffsetAndMetadata(5, "", -1)})
    assert python_admin.list_group_offsets(group)[group][partition].offset == 5
    assert python_admin.reset_group_offsets(group, {partition: PythonOffsetSpec.LATEST})[partition]["offset"] == 10
    python_admin.delete_group_offsets(group, [partition])
    assert partition not in python_admin.list_group_offsets(group)[group]
    assert python_admin.delete_groups([group]) == {group: "OK"}


# aiokafka, in versions of the messages that the others are too new for


@pytest.fixture
async def aio_admin(kafka_bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    yield admin
    await admin.close()


async def test_aiokafka_manages_topics(aio_admin: AIOKafkaAdminClient, new_name: NewName) -> None:
    name = new_name()
    config = {"retention.ms": "1000"}
    created = await aio_admin.create_topics([AioNewTopic(name, 2, 1, topic_configs=config)])
    assert [topic[:2] for topic in created.topic_errors] == [(name, 0)]
    await aio_admin.create_partitions({name: AioNewPartitions(3)})
    (described,) = await aio_admin.describe_topics([name])
    assert [part["leader"] for part in described["partitions"]] == [0, 0, 0]
    await aio_admin.alter_configs([AioConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "5"})])
    (response,) = await aio_admin.describe_configs([AioConfigResource(ConfigResourceType.TOPIC, name)])
    values = {entry[0]: entry[1] for entry in response.resources[0][4]}
    assert (values["retention.ms"], values["cleanup.policy"]) == ("5", "delete")
    await aio_admin.delete_topics([name])
    assert name not in await aio_admin.list_topics()


async def test_aiokafka_sees_groups_and_deletes_records(
    aio_admin: AIOKafkaAdminClient, kafka_bootstrap: str, filled: str
) -> None:
    group, partition = f"aio-{filled}", AioPartition(filled, 0)
    assert await aio_admin.delete_records({partition: RecordsToDelete(4)}) == {partition: 4}
    consumer = AIOKafkaConsumer(filled, bootstrap_servers=kafka_bootstrap, group_id=group, auto_offset_reset="earliest")
    async with consumer:
        assert (await consumer.getone()).offset == 4
        await consumer.commit()
        (response,) = await aio_admin.describe_consumer_groups([group])
        assert [described[1:4] for described in response.groups] == [(group, "Stable", "consumer")]
    assert (group, "consumer") in await aio_admin.list_consumer_groups()
    assert (await aio_admin.list_consumer_group_offsets(group))[partition].offset == 5
    assert await aio_admin.find_coordinator(group) == 0
