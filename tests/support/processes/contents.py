"""What a broker keeps, written and read by Kafka's clients: the same program for each version of sparklog.

`fill` writes a little of everything; `read` returns all that is there, as values that JSON can have. What a stop, a
copy or an upgrade must keep is equal before and after.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from support.patience import PATIENCE_S, wait_until

AUTHORIZED = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)
"""Settings of a broker that can have ACLs."""
FEW = ("offsets.topic.num.partitions=1", "cluster.history.enable=false")
FEW_TRANSACTIONS = "transaction.state.log.num.partitions=1"
ORDERS, NEWEST, PAID, GROUP, USER = "orders", "newest", "paid", "readers", "alice"
T0_MS = 1_750_000_000_000
HOUR_MS = 3_600_000
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
Contents = dict[str, Any]


def fill(kafka: str, *, has_acls: bool = True, has_transactions: bool = True) -> None:
    """Write topics with segments and codecs, a compacted one, a group, a user, and what else the version has."""
    admin = AdminClient({"bootstrap.servers": kafka})
    topics = [
        NewTopic(ORDERS, 2, config={"segment.ms": str(HOUR_MS), "retention.ms": "-1"}),
        NewTopic(NEWEST, 1, config={"cleanup.policy": "compact", "segment.ms": str(HOUR_MS)}),
    ]
    finish(admin.create_topics(topics).values())
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        send(kafka, ORDERS, range(10), codec=codec, partition=0)
    send(kafka, ORDERS, range(20), partition=1)
    for number in range(3):  # a segment for each
        send(kafka, NEWEST, range(5), partition=0, timestamp_ms=T0_MS + 2 * number * HOUR_MS)
    offsets = [TopicPartition(ORDERS, 0, 30), TopicPartition(ORDERS, 1, 7, metadata="seen")]
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": GROUP})
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    user = UserScramCredentialUpsertion(USER, credential, b"secret", b"salt-of-alice")
    finish(admin.alter_user_scram_credentials([user]).values())
    if has_acls:
        acl = AclBinding(
            ResourceType.TOPIC, ORDERS, ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation.READ,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        finish(admin.create_acls([acl]).values())
    if has_transactions:
        finish(admin.create_topics([NewTopic(PAID, 1)]).values())
        pay(kafka)


def pay(kafka: str) -> None:
    """A transaction that is committed, with offsets of the group, and one that is aborted."""
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": "payments"})
    producer.init_transactions(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": GROUP})
    for commits in (True, False):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(PAID, value=b"%d" % number, partition=0, timestamp=T0_MS)
        if commits:
            offsets = [TopicPartition(ORDERS, 1, 11)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
    consumer.close()


def send(
    kafka: str, topic: str, numbers: Iterable[int], *, partition: int, codec: str = "none", timestamp_ms: int = T0_MS
) -> None:
    """Write a record for each number; it returns once all are acknowledged."""
    failed: list[object] = []
    producer = Producer(
        {"bootstrap.servers": kafka, "compression.type": codec, "enable.idempotence": True, "linger.ms": 20}
    )
    for number in numbers:
        producer.produce(
            topic, key=b"%d" % number, value=f"{codec} {number}".encode(), partition=partition, timestamp=timestamp_ms,
            headers=[("codec", codec.encode())], on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(PATIENCE_S) == 0
    assert not failed, failed


def read(kafka: str, *, has_acls: bool = True) -> Contents:
    """Everything that is there. Committed records only."""
    admin = AdminClient({"bootstrap.servers": kafka})
    topics = wait_until(lambda: led_topics(admin), "all partitions are led")
    partitions = [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]
    users = finish([admin.describe_user_scram_credentials()])[0]
    group = [*admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()]
    found = {
        "topics": topics,
        "records": {f"{each.topic}-{each.partition}": records(kafka, each) for each in partitions},
        "groups": {
            f"{each.topic}-{each.partition}": [each.offset, each.metadata]
            for each in sorted(finish(group)[0].topic_partitions)
        },
        "users": {
            name: [[info.mechanism.name, info.iterations] for info in each.scram_credential_infos]
            for name, each in users.items()
        },
        "acls": sorted(map(str, finish([admin.describe_acls(EVERY_ACL)])[0])) if has_acls else [],
    }
    return json.loads(json.dumps(found))


def led_topics(admin: AdminClient) -> dict[str, int] | None:
    """The number of partitions of each topic of users; None if some partition has no leader yet."""
    found = admin.list_topics(timeout=PATIENCE_S).topics
    ours = {name: topic for name, topic in sorted(found.items()) if not name.startswith("__")}
    if any(part.leader < 0 for topic in ours.values() for part in topic.partitions.values()):
        return None
    return {name: len(topic.partitions) for name, topic in ours.items()}


def records(kafka: str, partition: TopicPartition) -> list[list[Any]]:
    """Offset, timestamp, key, value and headers of each record."""
    settings = {
        "bootstrap.servers": kafka, "group.id": "never-commits", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest",
    }  # fmt: skip
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(partition.topic, partition.partition, 0)])
        found: list[list[Any]] = []
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing came from {partition}"
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
            headers = [[name, value.decode()] for name, value in message.headers() or []]
            key, value = (each.decode() if each is not None else None for each in (message.key(), message.value()))
            found.append([message.offset(), message.timestamp()[1], key, value, headers])
    finally:
        consumer.close()


def finish(futures: Iterable[Future[Any]]) -> list[Any]:
    return [future.result(PATIENCE_S) for future in futures]
