"""librdkafka on a cluster with an authorizer: ACLs created through one broker apply on all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from sparklog.base.config import STANDARD_AUTHORIZER
from sparklog.testing import RunningCluster, start_cluster
from support.patience import PATIENCE_S, wait_until

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    users = " ".join(f'user_{name}="{name}"' for name in ("admin", "alice"))
    with start_cluster(
        3,
        kafka=True,
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        plain_sasl_jaas_config=f"{MODULE} required {users};",
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:admin;User:ANONYMOUS",  # brokers have no certificate here
        group_initial_rebalance_delay_ms=0,
    ) as cluster:
        yield cluster


def options(address: str, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": user,
        "log_level": 0,
    }


def acl(resource_type: Any, name: str, operation: Any) -> Any:
    return AclBinding(
        resource_type, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
    )


def written(address: str) -> KafkaError | None:
    """The error of alice's refused record."""
    errors: list[KafkaError | None] = []
    producer = Producer(options(address, "alice"))
    producer.produce("orders", b"hello", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    return errors[0]


def test_acls_made_through_one_broker_hold_on_all(cluster: RunningCluster) -> None:
    addresses = cluster.kafka.split(",")
    admin = AdminClient(options(addresses[0], "admin"))
    admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(PATIENCE_S)
    for address in addresses:
        refused = written(address)
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    made = [
        acl(ResourceType.TOPIC, "orders", AclOperation.WRITE),
        acl(ResourceType.TOPIC, "orders", AclOperation.READ),
        acl(ResourceType.GROUP, "readers", AclOperation.READ),
    ]
    for future in admin.create_acls(made).values():
        future.result(PATIENCE_S)
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for address in addresses:
        assert set(AdminClient(options(address, "admin")).describe_acls(every).result(PATIENCE_S)) == set(made)
        wait_until(lambda address=address: written(address) is None, f"{address} applies the ACLs")

    consumer = Consumer(options(cluster.kafka, "alice") | {"group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    read = [message for _ in range(3) if (message := consumer.poll(PATIENCE_S)) and not message.error()]
    assert [message.value() for message in read] == [b"hello"] * 3
    consumer.close()

    [deleted] = admin.delete_acls([every]).values()
    assert set(deleted.result(PATIENCE_S)) == set(made)
    for address in addresses:
        wait_until(lambda address=address: written(address) is not None, f"{address} has forgotten the ACLs")


def test_who_has_no_right_to_alter_the_cluster_makes_no_acls(cluster: RunningCluster) -> None:
    alice = AdminClient(options(cluster.kafka, "alice"))
    [future] = alice.create_acls([acl(ResourceType.TOPIC, "orders", AclOperation.ALL)]).values()
    with pytest.raises(KafkaException) as refused:
        future.result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
