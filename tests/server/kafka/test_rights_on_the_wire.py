"""Every API of Kafka's protocol: for a user without rights, with exactly the right, and with a denial beside it."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import pytest

from sparklog.base.acls import (
    AclOperation,
    AclResourceType,
)
from sparklog.base.config import STANDARD_AUTHORIZER
from sparklog.broker.apis import APIS, PEER_APIS
from sparklog.records.records import Record, write_records
from sparklog.testing import RunningBroker, start_broker
from support import rights
from support.kafka.connection import Wire
from support.rights import UNAUTHORIZED, Needed, Right, on
from support.rights import on_cluster as cluster

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TRANSACTIONAL_ID,
)
Op = AclOperation
FOR_EVERYBODY = {
    "ApiVersions", "SaslHandshake", "SaslAuthenticate", "DescribeCluster", "GetTelemetrySubscriptions", "PushTelemetry",
}  # fmt: skip
T, G, X = "topic", "group", "transactional-id"
BATCH = bytes(write_records([Record(offset=0, timestamp_ms=1, value=b"v")]))
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    + " ".join(f'user_{name}="{name}"' for name in ("admin", "user"))
    + ";"
)


ACL_FILTER = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
OFFSET = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
PRODUCER = {"transactional_id": X, "producer_id": 1, "producer_epoch": 0}
MEMBER = {"group_id": G, "member_id": "m", "group_instance_id": None}
GENERATION = {**MEMBER, "generation_id": 1}
REQUESTS: dict[str, tuple[int, int, dict[str, Any], Needed]] = {
    "Produce": (
        0,
        9,
        {"acks": -1, "timeout": 1000, "topic_data": [{"name": T, "partition_data": [{"index": 0, "records": BATCH}]}]},
        on(Op.WRITE, TOPIC, T),
    ),
    "Fetch": (
        1,
        11,
        {
            "max_wait": 0,
            "min_bytes": 0,
            "topics": [
                {"topic": T, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}
            ],
            "forgotten_topics_data": [],
        },
        on(Op.READ, TOPIC, T),
    ),
    "ListOffsets": (
        2,
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": T, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
        on(Op.DESCRIBE, TOPIC, T),
    ),
    "Metadata": (
        3,
        12,
        {
            "topics": [{"topic_id": None, "name": T}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
            "include_cluster_authorized_operations": False,
        },
        on(Op.DESCRIBE, TOPIC, T),
    ),
    "OffsetForLeaderEpoch": (
        23,
        4,
        {"topics": [{"topic": T, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        on(Op.DESCRIBE, TOPIC, T),
    ),
    "DescribeTopicPartitions": (
        75,
        0,
        {"topics": [{"name": T}], "response_partition_limit": 10, "cursor": None},
        on(Op.DESCRIBE, TOPIC, T),
    ),
    "CreateTopics": (
        19,
        7,
        {
            "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}],
            "timeout": 1000,
        },
        on(Op.CREATE, TOPIC, "new"),
    ),
    "DeleteTopics": (
        20,
        6,
        {"topics": [{"name": "gone", "topic_id": None}], "timeout": 1000},
        on(Op.DELETE, TOPIC, "gone"),
    ),
    "CreatePartitions": (
        37,
        3,
        {"topics": [{"name": T, "count": 1, "assignments": None}], "timeout": 1000, "validate_only": False},
        on(Op.ALTER, TOPIC, T),
    ),
    "DescribeConfigs": (
        32,
        4,
        {"resources": [{"resource_type": 2, "resource_name": T, "configuration_keys": None}]},
        on(Op.DESCRIBE_CONFIGS, TOPIC, T),
    ),
    "AlterConfigs": (
        33,
        2,
        {"resources": [{"resource_type": 2, "resource_name": T, "configs": []}], "validate_only": False},
        on(Op.ALTER_CONFIGS, TOPIC, T),
    ),
    "DeleteRecords": (
        21,
        2,
        {"topics": [{"name": T, "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout": 1000},
        on(Op.DELETE, TOPIC, T),
    ),
    "DescribeLogDirs": (35, 4, {"topics": None}, cluster(Op.DESCRIBE)),
    "AlterReplicaLogDirs": (
        34,
        2,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": T, "partitions": [0]}]}]},
        cluster(Op.ALTER),
    ),
    "InitProducerId": (
        22,
        4,
        {"transactional_id": X, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1},
        on(Op.WRITE, TRANSACTIONAL_ID, X),
    ),
    "AddPartitionsToTxn": (
        24,
        3,
        {
            "v3_and_below_transactional_id": X,
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": T, "partitions": [0]}],
        },
        on(Op.WRITE, TRANSACTIONAL_ID, X, Op.WRITE, TOPIC, T),
    ),
    "AddOffsetsToTxn": (25, 3, {**PRODUCER, "group_id": G}, on(Op.WRITE, TRANSACTIONAL_ID, X, Op.READ, GROUP, G)),
    "TxnOffsetCommit": (
        28,
        3,
        {**PRODUCER, **GENERATION, "topics": [{"name": T, "partitions": [OFFSET]}]},
        on(Op.WRITE, TRANSACTIONAL_ID, X, Op.READ, GROUP, G, Op.READ, TOPIC, T),
    ),
    "EndTxn": (26, 4, {**PRODUCER, "committed": True}, on(Op.WRITE, TRANSACTIONAL_ID, X)),
    "WriteTxnMarkers": (
        27,
        1,
        {
            "markers": [
                {
                    "producer_id": 1,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "coordinator_epoch": 0,
                    "topics": [{"name": T, "partition_indexes": [0]}],
                }
            ]
        },
        cluster(Op.CLUSTER_ACTION),
    ),
    "DescribeTransactions": (65, 0, {"transactional_ids": ["unknown"]}, on(Op.DESCRIBE, TRANSACTIONAL_ID, "unknown")),
    "ListTransactions": (
        66,
        1,
        {"state_filters": [], "producer_id_filters": [], "duration_filter": -1},
        on(Op.DESCRIBE, TRANSACTIONAL_ID, "open"),
    ),
    "DescribeProducers": (61, 0, {"topics": [{"name": T, "partition_indexes": [0]}]}, on(Op.READ, TOPIC, T)),
    "OffsetCommit": (
        8,
        8,
        {**MEMBER, "generation_id_or_member_epoch": 1, "topics": [{"name": T, "partitions": [OFFSET]}]},
        on(Op.READ, GROUP, G, Op.READ, TOPIC, T),
    ),
    "OffsetFetch": (
        9,
        8,
        {"groups": [{"group_id": G, "topics": [{"name": T, "partition_indexes": [0]}]}], "require_stable": False},
        on(Op.DESCRIBE, GROUP, G, Op.DESCRIBE, TOPIC, T),
    ),
    "FindCoordinator": (10, 4, {"key_type": 0, "coordinator_keys": [G]}, on(Op.DESCRIBE, GROUP, G)),
    "JoinGroup": (
        11,
        7,
        {
            **MEMBER,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        on(Op.READ, GROUP, G),
    ),
    "Heartbeat": (12, 4, GENERATION, on(Op.READ, GROUP, G)),
    "LeaveGroup": (
        13,
        4,
        {"group_id": G, "members": [{"member_id": "m", "group_instance_id": None}]},
        on(Op.READ, GROUP, G),
    ),
    "SyncGroup": (
        14,
        5,
        {**GENERATION, "protocol_type": "consumer", "protocol_name": "range", "assignments": []},
        on(Op.READ, GROUP, G),
    ),
    "DescribeGroups": (15, 5, {"groups": [G], "include_authorized_operations": False}, on(Op.DESCRIBE, GROUP, G)),
    "ListGroups": (16, 4, {"states_filter": []}, on(Op.DESCRIBE, GROUP, "known")),
    "DeleteGroups": (42, 2, {"groups_names": [G]}, on(Op.DELETE, GROUP, G)),
    "OffsetDelete": (
        47,
        0,
        {"group_id": "known", "topics": [{"name": T, "partitions": [{"partition_index": 0}]}]},
        on(Op.DELETE, GROUP, "known", Op.READ, TOPIC, T),
    ),
    "ConsumerGroupDescribe": (
        69,
        0,
        {"group_ids": [G], "include_authorized_operations": False},
        on(Op.DESCRIBE, GROUP, G),
    ),
    "IncrementalAlterConfigs": (
        44,
        1,
        {"resources": [{"resource_type": 4, "resource_name": "0", "configs": []}], "validate_only": False},
        cluster(Op.ALTER_CONFIGS),
    ),
    "ListConfigResources": (74, 1, {"resource_types": [2]}, cluster(Op.DESCRIBE_CONFIGS)),
    "DescribeClientQuotas": (48, 1, {"components": [], "strict": False}, cluster(Op.DESCRIBE_CONFIGS)),
    "AlterClientQuotas": (
        49,
        1,
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": "x"}], "ops": ()}], "validate_only": True},
        cluster(Op.ALTER_CONFIGS),
    ),
    "DescribeUserScramCredentials": (50, 0, {"users": None}, cluster(Op.DESCRIBE)),
    "AlterUserScramCredentials": (
        51,
        0,
        {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
        cluster(Op.ALTER),
    ),
    "ConsumerGroupHeartbeat": (
        68,
        1,
        {
            "group_id": G,
            "member_id": "m",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 10_000,
            "subscribed_topic_names": [T],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [],
        },
        on(Op.READ, GROUP, G, Op.DESCRIBE, TOPIC, T),
    ),
    "DescribeAcls": (29, 3, ACL_FILTER, cluster(Op.DESCRIBE)),
    "CreateAcls": (
        30,
        3,
        {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": "x",
                    "resource_pattern_type": 3,
                    "principal": "User:x",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
        cluster(Op.ALTER),
    ),
    "DeleteAcls": (31, 3, {"filters": [{**ACL_FILTER, "resource_name_filter": "x"}]}, cluster(Op.ALTER)),
    "ElectLeaders": (
        43,
        2,
        {"election_type": 0, "topic_partitions": [{"topic": T, "partitions": [0]}], "timeout": 1000},
        cluster(Op.ALTER),
    ),
    "AlterPartitionReassignments": (
        45,
        0,
        {"timeout": 1000, "topics": [{"name": T, "partitions": [{"partition_index": 0, "replicas": None}]}]},
        cluster(Op.ALTER),
    ),
    "ListPartitionReassignments": (46, 0, {"timeout": 1000, "topics": None}, cluster(Op.DESCRIBE)),
}
"""Key, version and fields of a request that needs each of the rights, by API."""
UNASKED = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}
SHOWN = {"ListTransactions": "transaction_states", "ListGroups": "groups"}
"""Requests that are answered without what the client may not see, and the field that has the rest."""


@pytest.fixture(scope="module")
def authorizing() -> Iterator[RunningBroker]:
    with start_broker(
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        plain_sasl_jaas_config=JAAS,
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:admin",
        group_initial_rebalance_delay_ms=0,
        group_consumer_session_timeout_ms=600_000,  # the member of `known` sends no heartbeats
    ) as broker:
        with as_user(broker, "admin") as wire:
            for topic in (T, "gone"):
                fields = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
                created = wire.send(19, 7, topics=[fields], timeout=10_000)
                assert created.topics[0].error_code == 0
            init = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
            for key, name in ((0, "known"), (1, "open")):
                found: Any = None
                while found is None or found.coordinators[0].error_code:  # the coordinator's topic is created
                    found = wire.send(10, 4, key_type=key, coordinator_keys=[name])
            while wire.send(22, 4, transactional_id="open", **init).error_code:
                pass
            heartbeat = dict(REQUESTS["ConsumerGroupHeartbeat"][2], group_id="known")
            while wire.send(68, 1, **heartbeat).error_code:
                pass
        yield broker


def as_user(broker: RunningBroker, user: str) -> Wire:
    [address] = broker.node.kafka_addresses.values()
    wire = Wire(address)
    assert wire.send(17, 1, mechanism="PLAIN").error_code == 0
    assert wire.send(36, 2, auth_bytes=f"\0{user}\0{user}".encode()).error_code == 0
    return wire


def codes(message: Any) -> set[int]:
    """All error codes of a response."""
    found: set[int] = set()
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if isinstance(value, IntEnum) and field.name.endswith("error_code"):
            found.add(int(value))
        for each in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(each):
                found |= codes(each)
    return found


def allow(broker: RunningBroker, needed: Needed, *denied: Right) -> None:
    """Allow `user` the needed operations, and no others."""
    rights.allow(broker, "User:user", needed, *denied)


def is_refused(name: str, response: Any) -> bool:
    if field := SHOWN.get(name):
        return not getattr(response, field)
    return bool(codes(response) & UNAUTHORIZED)


def test_every_api_is_tried() -> None:
    assert REQUESTS.keys() | FOR_EVERYBODY == {api.name for api in APIS if api.key is not None}
    assert {api.name for api in (*APIS, *PEER_APIS.values()) if not api.rights} == FOR_EVERYBODY


@pytest.mark.parametrize("name", REQUESTS)
def test_a_client_needs_each_of_the_rights(authorizing: RunningBroker, name: str) -> None:
    key, version, fields, needed = REQUESTS[name]
    with as_user(authorizing, "user") as wire:
        for number, right in enumerate(needed):
            allow(authorizing, needed[:number] + needed[number + 1 :])
            assert is_refused(name, wire.send(key, version, **fields)), f"without {right}"
            allow(authorizing, needed, right)
            assert is_refused(name, wire.send(key, version, **fields)), f"with {right} denied"
        allow(authorizing, needed)
        assert not is_refused(name, wire.send(key, version, **fields))


@pytest.mark.parametrize("name", REQUESTS)
def test_a_super_user_needs_no_rights(authorizing: RunningBroker, name: str) -> None:
    key, version, fields, _ = REQUESTS[name]
    allow(authorizing, ())
    with as_user(authorizing, "admin") as wire:
        assert not is_refused(name, wire.send(key, version, **fields))


def test_an_idempotent_producer_needs_write_on_some_topic_or_idempotent_write(authorizing: RunningBroker) -> None:
    fields = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    with as_user(authorizing, "user") as wire:
        allow(authorizing, ())
        assert wire.send(22, 4, **fields).error_code == 31
        for needed in (on(Op.WRITE, TOPIC, "any"), cluster(Op.IDEMPOTENT_WRITE)):
            allow(authorizing, needed)
            assert wire.send(22, 4, **fields).error_code == 0


@pytest.mark.slow
def test_what_may_be_described_is_listed_and_the_rest_left_out(authorizing: RunningBroker) -> None:
    with as_user(authorizing, "user") as wire:
        allow(authorizing, on(Op.DESCRIBE, TOPIC, T))
        response = wire.send(3, 12, topics=None, allow_auto_topic_creation=False, **UNASKED)
    assert [topic.name for topic in response.topics] == [T]


def test_a_topic_is_refused_whether_it_exists_or_not(authorizing: RunningBroker) -> None:
    topics = [{"topic_id": None, "name": name} for name in (T, "missing")]
    with as_user(authorizing, "user") as wire:
        allow(authorizing, ())
        response = wire.send(3, 12, topics=topics, allow_auto_topic_creation=True, **UNASKED)
        assert [topic.error_code for topic in response.topics] == [29, 29]
        allow(authorizing, on(Op.DESCRIBE, TOPIC, T, Op.DESCRIBE, TOPIC, "missing"))
        response = wire.send(3, 12, topics=topics, allow_auto_topic_creation=True, **UNASKED)
        assert [topic.error_code for topic in response.topics] == [0, 29], "it may not create the topic"
        allow(authorizing, ())
        topic_id = authorizing.node.broker.metadata.get(T).topic_id
        by_id = wire.send(3, 12, topics=[{"topic_id": each, "name": None} for each in (topic_id, uuid.UUID(int=9))],
                          allow_auto_topic_creation=False, **UNASKED)  # fmt: skip
    assert [topic.error_code for topic in by_id.topics] == [100, 100]
    assert "missing" not in authorizing.node.broker.metadata


def test_one_topic_that_is_refused_leaves_the_others_served(authorizing: RunningBroker) -> None:
    data = [{"name": name, "partition_data": [{"index": 0, "records": BATCH}]} for name in ("secret", T)]
    with as_user(authorizing, "user") as wire:
        allow(authorizing, on(Op.WRITE, TOPIC, T))
        response = wire.send(0, 9, acks=-1, timeout=1000, topic_data=data)
    found = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
    assert found == {"secret": 29, T: 0}


def test_a_regular_expression_matches_what_the_member_may_describe(authorizing: RunningBroker) -> None:
    key, version, fields, _ = REQUESTS["ConsumerGroupHeartbeat"]
    asked = fields | {"member_id": "m", "subscribed_topic_names": None, "subscribed_topic_regex": ".*"}
    with as_user(authorizing, "user") as wire, as_user(authorizing, "admin") as admin:
        allow(authorizing, on(Op.READ, GROUP, "some", Op.DESCRIBE, TOPIC, T))
        some = wire.send(key, version, **asked | {"group_id": "some"})
        all_topics = admin.send(key, version, **asked | {"group_id": "all"})
    known = {authorizing.node.broker.metadata.get(T).topic_id}
    assert {topic.topic_id for topic in some.assignment.topic_partitions} == known
    assert {topic.topic_id for topic in all_topics.assignment.topic_partitions} > known


def test_a_fetch_session_ends_with_the_right_to_read(authorizing: RunningBroker) -> None:
    key, version, fields, needed = REQUESTS["Fetch"]
    with as_user(authorizing, "user") as wire:
        allow(authorizing, needed)
        first = wire.send(key, version, **fields, session_id=0, session_epoch=0)
        assert codes(first) == {0}
        with as_user(authorizing, "admin") as other:
            data = [{"name": T, "partition_data": [{"index": 0, "records": BATCH}]}]
            other.send(0, 9, acks=-1, timeout=1000, topic_data=data)
        allow(authorizing, ())
        again = wire.send(
            key, version, max_wait=0, min_bytes=0, topics=[], forgotten_topics_data=[], session_id=first.session_id,
            session_epoch=1,
        )  # fmt: skip
    assert [part.error_code for topic in again.responses for part in topic.partitions] == [29]
    assert not any(part.records for topic in again.responses for part in topic.partitions)


def test_a_client_is_told_what_it_may_do_if_it_asks(authorizing: RunningBroker) -> None:
    needed = on(Op.READ, TOPIC, T, Op.ALTER_CONFIGS, TOPIC, T, Op.DELETE, GROUP, "known", Op.DESCRIBE, GROUP, "known")
    asked = dict.fromkeys(UNASKED, True)
    with as_user(authorizing, "user") as wire:
        allow(authorizing, needed + cluster(Op.CREATE))
        topics = [{"topic_id": None, "name": T}]
        found = wire.send(3, 10, topics=topics, allow_auto_topic_creation=False, **asked)
        groups = wire.send(69, 0, group_ids=["known"], include_authorized_operations=True).groups
    assert operations(found.topics[0].topic_authorized_operations) == {
        Op.READ, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS,
    }  # fmt: skip
    assert operations(found.cluster_authorized_operations) == {Op.CREATE}
    assert operations(groups[0].authorized_operations) == {Op.DELETE, Op.DESCRIBE}


def operations(bits: int) -> set[AclOperation]:
    return {each for each in AclOperation if bits > 0 and bits & 1 << each}


def test_one_group_that_is_refused_leaves_the_others_answered(authorizing: RunningBroker) -> None:
    groups = [{"group_id": name, "topics": None} for name in ("secret", "known")]
    with as_user(authorizing, "user") as wire:
        allow(authorizing, on(Op.DESCRIBE, GROUP, "known"))
        response = wire.send(9, 8, groups=groups, require_stable=False)
    assert {group.group_id: group.error_code for group in response.groups} == {"secret": 30, "known": 0}


def test_a_missing_topic_is_created_by_whoever_may(authorizing: RunningBroker) -> None:
    topics = [{"topic_id": None, "name": "made"}]
    with as_user(authorizing, "user") as wire:
        allow(authorizing, on(Op.DESCRIBE, TOPIC, "made", Op.CREATE, TOPIC, "made"))
        response = wire.send(3, 12, topics=topics, allow_auto_topic_creation=True, **UNASKED)
        assert response.topics[0].error_code != 29
    assert "made" in authorizing.node.broker.metadata


@pytest.mark.slow
def test_a_group_is_not_shown_with_topics_that_the_client_may_not_describe(authorizing: RunningBroker) -> None:
    rights = on(Op.DESCRIBE, GROUP, "known", Op.DESCRIBE, TOPIC, T)
    with as_user(authorizing, "user") as wire:
        for needed, code in ((rights, 0), (rights[:1], 29)):
            allow(authorizing, needed)
            [group] = wire.send(69, 0, group_ids=["known"], include_authorized_operations=False).groups
            assert group.error_code == code
            assert bool(group.members) is (code == 0)
