"""Topics, configurations and the cluster, through a real broker."""

from __future__ import annotations

import os
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sparklog import __version__
from sparklog.base.config import CHANGEABLE
from sparklog.base.topic_config import TOPIC_KEYS
from sparklog.testing import start_broker
from sparklog.v1 import admin_pb2, log_pb2


def create(client, **fields) -> admin_pb2.TopicResult:
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(**fields)])
    return client.admin.CreateTopics(request).topics[0]


def delete(client, name: str) -> admin_pb2.TopicResult:
    return client.admin.DeleteTopics(admin_pb2.DeleteTopicsRequest(names=[name])).topics[0]


def grow(client, name: str, total: int, **fields) -> admin_pb2.TopicResult:
    counts = [admin_pb2.PartitionCount(name=name, total=total)]
    return client.admin.CreatePartitions(admin_pb2.CreatePartitionsRequest(topics=counts, **fields)).topics[0]


def alter(client, name: str, type: str = "TOPIC", **fields) -> admin_pb2.ResourceResult:
    resource = admin_pb2.ConfigResource(type=type, name=name)
    changes = [admin_pb2.ConfigChange(resource=resource, **fields)]
    return client.admin.AlterConfigs(admin_pb2.AlterConfigsRequest(changes=changes)).resources[0]


def configs(client, name: str, type: str = "TOPIC") -> dict[str, admin_pb2.ConfigEntry]:
    resource = admin_pb2.ConfigResource(type=type, name=name)
    request = admin_pb2.DescribeConfigsRequest(resources=[resource])
    found = client.admin.DescribeConfigs(request).resources[0]
    assert not found.HasField("error"), found.error.message
    return {entry.name: entry for entry in found.entries}


def delete_records(client, topic: str, before_offset: int) -> admin_pb2.RecordsDeleted:
    part = admin_pb2.RecordsToDelete(topic=topic, partition=0, before_offset=before_offset)
    return client.admin.DeleteRecords(admin_pb2.DeleteRecordsRequest(partitions=[part])).partitions[0]


def listed(client) -> dict[str, int]:
    topics = client.admin.ListTopics(admin_pb2.ListTopicsRequest()).topics
    return {topic.name: topic.partitions for topic in topics}


def test_a_topic_is_created_listed_described_and_deleted(client, names: Iterator[str]) -> None:
    name = next(names)
    assert create(client, name=name, partitions=3, configs={"retention.ms": "1000"}).partitions == 3
    assert listed(client)[name] == 3
    found = client.describe(name)
    assert dict(found.configs) == {"retention.ms": "1000"}
    assert [(part.partition, part.leader, list(part.replicas)) for part in found.partitions] == [
        (number, 0, [0]) for number in range(3)
    ]
    assert not delete(client, name).HasField("error")
    assert name not in listed(client)
    assert client.describe(name).error.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert delete(client, name).error.name == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_name_is_free_again_after_deletion_and_the_new_topic_is_empty(client, topic: str, batch) -> None:
    client.produce(topic, batch([b"old"]))
    delete(client, topic)
    create(client, name=topic)
    assert client.end_offset(topic) == 0
    assert client.produce(topic, batch([b"new"])).base_offset == 0


def test_a_topic_exists_once(client, topic: str) -> None:
    assert create(client, name=topic).error.name == "TOPIC_ALREADY_EXISTS"


def test_names_that_differ_in_dots_and_underscores_only_collide(client, names: Iterator[str]) -> None:
    name = next(names)
    create(client, name=f"{name}.a_b")
    refused = create(client, name=f"{name}_a.b").error
    assert refused.name == "INVALID_TOPIC_EXCEPTION"
    assert refused.message == f"Topic '{name}_a.b' collides with existing topic: {name}.a_b"


def test_a_topic_named_twice_in_a_request_is_refused(client, names: Iterator[str]) -> None:
    new = admin_pb2.NewTopic(name=next(names))
    answer = client.admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=[new, new]))
    assert [result.error.name for result in answer.topics] == ["INVALID_REQUEST"] * 2


def test_validation_alone_changes_nothing(client, topic: str, names: Iterator[str]) -> None:
    name = next(names)
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name, partitions=2)], validate_only=True)
    assert client.admin.CreateTopics(request).topics[0].partitions == 2
    assert name not in listed(client)
    assert grow(client, topic, 4, validate_only=True).partitions == 4
    assert listed(client)[topic] == 1


def test_a_topic_grows_and_never_shrinks(client, topic: str, batch) -> None:
    assert client.produce(topic, batch([b"x"]), 1).error.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert grow(client, topic, 3).partitions == 3
    assert client.produce(topic, batch([b"x"]), 2).base_offset == 0
    for total in (3, 1, 0, -1):
        assert grow(client, topic, total).error.name == "INVALID_PARTITIONS"
    assert grow(client, topic, 3).error.message == "Topic already has 3 partition(s)."
    shrunk = f"The topic {topic} currently has 3 partition(s); 2 would not be an increase."
    assert grow(client, topic, 2).error.message == shrunk
    assert grow(client, "nowhere", 3).error.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert listed(client)[topic] == 3


def test_a_topics_configuration_shows_every_key_with_its_source(client, topic: str) -> None:
    alter(client, topic, set={"retention.ms": "5000"})
    found = configs(client, topic)
    assert set(found) == set(TOPIC_KEYS) - {"internal.segment.bytes"}
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("5000", admin_pb2.TOPIC_CONFIG)
    assert (found["segment.bytes"].value, found["segment.bytes"].source) == ("1073741824", admin_pb2.DEFAULT_CONFIG)
    assert "Allowed: a whole number from -1" in found["retention.ms"].documentation
    assert not found["retention.ms"].read_only


def test_single_keys_are_set_and_unset(client, topic: str) -> None:
    alter(client, topic, set={"retention.ms": "5000", "cleanup.policy": "compact"})
    assert not alter(client, topic, set={"retention.bytes": "7"}, unset=["retention.ms"]).HasField("error")
    assert dict(client.describe(topic).configs) == {"cleanup.policy": "compact", "retention.bytes": "7"}


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"set": {"retention.mss": "1"}}, "INVALID_CONFIG", "did you mean retention.ms?"),
        ({"set": {"retention.ms": "-2"}}, "INVALID_CONFIG", "a whole number from -1"),
        ({"set": {"retention.ms": "5", "segment.bytes": "x"}}, "INVALID_CONFIG", "segment.bytes"),
        ({"unset": ["no.such"]}, "INVALID_CONFIG", "no.such"),
        ({"set": {"retention.ms": "5"}, "unset": ["retention.ms"]}, "INVALID_REQUEST", "retention.ms"),
    ],
)
def test_a_wrong_change_is_refused_as_a_whole(client, topic: str, fields: dict, error: str, said: str) -> None:
    result = alter(client, topic, **fields)
    assert result.error.name == error
    assert said in result.error.message
    assert not client.describe(topic).configs


def test_a_changed_limit_holds_for_the_next_request(client, topic: str, batch) -> None:
    alter(client, topic, set={"max.message.bytes": "100"})
    assert client.produce(topic, batch([b"x" * 200])).error.name == "MESSAGE_TOO_LARGE"
    alter(client, topic, unset=["max.message.bytes"])
    assert not client.produce(topic, batch([b"x" * 200])).HasField("error")


def test_the_brokers_configuration_is_shown(client) -> None:
    found = configs(client, "0", type="BROKER")
    assert (found["auto.create.topics.enable"].value, found["broker.id"].value) == ("false", "0")
    assert found["auto.create.topics.enable"].source == admin_pb2.STATIC_BROKER_CONFIG
    assert found["log.retention.ms"].source == admin_pb2.DEFAULT_CONFIG
    assert {name for name, entry in found.items() if not entry.read_only} == set(CHANGEABLE)
    assert alter(client, "0", type="BROKER", set={"num.partitions": "2"}).error.name == "INVALID_REQUEST"
    assert alter(client, "7", type="BROKER", set={"num.partitions": "2"}).error.name == "INVALID_REQUEST"
    assert alter(client, "0", type="BROKER", set={"leader.replication.throttled.rate": "x"}).error.name == (
        "INVALID_CONFIG"
    )


def test_what_a_running_broker_looks_at_again_can_be_changed(client) -> None:
    name = "leader.replication.throttled.rate"
    assert not alter(client, "", type="BROKER", set={name: "1000"}).HasField("error")
    found = configs(client, "0", type="BROKER")[name]
    assert (found.value, found.source) == ("1000", admin_pb2.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert not alter(client, "0", type="BROKER", set={name: "500"}).HasField("error")
    found = configs(client, "0", type="BROKER")[name]
    assert (found.value, found.source) == ("500", admin_pb2.DYNAMIC_BROKER_CONFIG)
    for entity in ("", "0"):
        assert not alter(client, entity, type="BROKER", unset=[name]).HasField("error")
    assert configs(client, "0", type="BROKER")[name].source == admin_pb2.DEFAULT_CONFIG


def test_deleted_records_are_gone_for_readers_at_once(client, topic: str, batch) -> None:
    client.produce(topic, batch([b"0", b"1"]))
    client.produce(topic, batch([b"2", b"3"]))
    assert delete_records(client, topic, 2).log_start_offset == 2
    assert client.fetch(topic, 1).error.name == "OFFSET_OUT_OF_RANGE"
    assert client.fetch(topic, 2).log_start_offset == 2
    assert delete_records(client, topic, 1).log_start_offset == 2
    assert delete_records(client, topic, -1).log_start_offset == 4
    assert client.produce(topic, batch([b"4"])).base_offset == 4


@pytest.mark.parametrize("before_offset", [-2, 2, 2**63 - 1])
def test_records_that_are_not_there_cannot_be_deleted(before_offset: int, client, topic: str, batch) -> None:
    client.produce(topic, batch([b"0"]))
    assert delete_records(client, topic, before_offset).error.name == "OFFSET_OUT_OF_RANGE"
    assert client.fetch(topic, 0).log_start_offset == 0


def test_records_of_a_compacted_topic_cannot_be_deleted(client, topic: str, batch) -> None:
    client.produce(topic, batch([b"0"]))
    alter(client, topic, set={"cleanup.policy": "compact"})
    assert delete_records(client, topic, 1).error.name == "POLICY_VIOLATION"


def test_the_cluster_is_this_broker(client, broker) -> None:
    found = client.admin.DescribeCluster(admin_pb2.DescribeClusterRequest())
    assert len(found.cluster_id) == 22
    assert found.controller_id == 0
    assert [(each.id, each.grpc_address, each.version) for each in found.brokers] == [
        (0, broker.bootstrap, __version__)
    ]


def test_log_dirs_tell_where_partitions_lie_and_how_far_they_go(client, broker, topic: str, batch) -> None:
    client.produce(topic, batch([b"x", b"y"]))
    answer = client.admin.DescribeLogDirs(admin_pb2.DescribeLogDirsRequest(topics=[topic, "nowhere"]))
    (found,) = answer.log_dirs
    (part,) = found.partitions
    assert found.path == os.path.abspath(broker.data_dir)
    assert os.path.getsize(f"{found.path}/{topic}-0/{0:020}.log") == part.size_bytes
    assert (part.topic, part.partition, part.log_start_offset, part.high_watermark, part.log_end_offset) == (
        topic, 0, 0, 2, 2,
    )  # fmt: skip
    everything = client.admin.DescribeLogDirs(admin_pb2.DescribeLogDirsRequest()).log_dirs[0]
    assert len(everything.partitions) == sum(listed(client).values())


def test_health_says_serving(client) -> None:
    stub = health_pb2_grpc.HealthStub(client.channel)
    for service in (
        "",
        "sparklog.v1.Log",
        "sparklog.v1.Groups",
        "sparklog.v1.Admin",
        "sparklog.v1.Maintenance",
        "sparklog.v1.Replication",
    ):
        status = stub.Check(health_pb2.HealthCheckRequest(service=service)).status
        assert status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_lists_the_services(client) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([request]))
    names = {service.name for service in answer.list_services_response.service}
    services = {f"sparklog.v1.{name}" for name in ("Log", "Groups", "Admin", "Maintenance", "Replication")}
    assert services | {"grpc.health.v1.Health"} <= names


def test_producing_creates_the_topic_where_the_broker_does_that(connect, batch) -> None:
    with start_broker(num_partitions=2) as broker:
        client = connect(broker)
        assert client.produce("new", batch([b"x"]), 1).base_offset == 0
        assert client.produce("bad name", batch([b"x"])).error.name == "UNKNOWN_TOPIC_OR_PARTITION"
        assert client.produce("new2", batch([b"x"]), 5).error.name == "UNKNOWN_TOPIC_OR_PARTITION"
        assert client.fetch("unseen", 0).error.name == "UNKNOWN_TOPIC_OR_PARTITION"
        assert listed(client) == {"new": 2, "new2": 2}


def test_describing_creates_the_topic_only_if_asked_to(connect, client) -> None:
    def describe(client, name: str, allow: bool) -> admin_pb2.TopicDescription:
        request = admin_pb2.DescribeTopicsRequest(names=[name], allow_auto_topic_creation=allow)
        return client.admin.DescribeTopics(request).topics[0]

    assert describe(client, "unseen", True).error.name == "UNKNOWN_TOPIC_OR_PARTITION"  # the broker does not do that
    with start_broker() as broker:
        other = connect(broker)
        assert describe(other, "unseen", False).error.name == "UNKNOWN_TOPIC_OR_PARTITION"
        assert len(describe(other, "unseen", True).partitions) == 1
        assert describe(other, "un seen", True).error.name == "INVALID_TOPIC_EXCEPTION"
        assert [topic.name for topic in other.admin.DescribeTopics(admin_pb2.DescribeTopicsRequest()).topics] == [
            "unseen"
        ]


def test_topics_stay_where_deletion_is_disabled(connect) -> None:
    with start_broker(delete_topic_enable=False) as broker:
        client = connect(broker)
        create(client, name="t")
        assert delete(client, "t").error.name == "TOPIC_DELETION_DISABLED"
        assert listed(client) == {"t": 1}


@pytest.mark.slow
def test_a_call_without_deadline_is_refused_by_a_broker_that_is_gone(connect) -> None:
    with start_broker() as broker:
        client = connect(broker)
        client.admin.ListTopics(admin_pb2.ListTopicsRequest())
    with pytest.raises(grpc.RpcError) as refused:
        client.log.Fetch(log_pb2.FetchRequest())
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
