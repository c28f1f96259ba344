"""ACLs in the cluster store."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from sparklog.base.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from sparklog.base.errors import ConnectionLoss, StoreError
from sparklog.cluster.acls import ACL_CHANGES, EXTENDED_ACL_CHANGES, AclStore
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.sqlite import SqliteStore

READ, WRITE = AclOperation.READ, AclOperation.WRITE


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    made = SqliteStore.open(":memory:")
    yield made
    made.close()


def acl(
    name: str,
    operation: AclOperation = READ,
    pattern: PatternType = PatternType.LITERAL,
    *,
    principal: str = "User:alice",
    resource_type: AclResourceType = AclResourceType.TOPIC,
) -> AclBinding:
    return AclBinding(resource_type, name, pattern, principal, "*", operation, AclPermission.ALLOW)


def test_acls_are_kept_in_kafkas_form(store: SqliteStore) -> None:
    acls = AclStore(store)
    acls.add([acl("orders", AclOperation.DESCRIBE_CONFIGS), acl("*"), acl("billing-", WRITE, PatternType.PREFIXED)])
    acls.add([acl("id", resource_type=AclResourceType.TRANSACTIONAL_ID)])

    entry = {"principal": "User:alice", "permissionType": "Allow", "operation": "DescribeConfigs", "host": "*"}
    assert json.loads(store.get("/kafka-acl/Topic/orders").data) == {"version": 1, "acls": [entry]}
    assert store.children("/kafka-acl/Topic") == ["*", "orders"]
    assert store.children("/kafka-acl/TransactionalId") == ["id"]
    assert store.children("/kafka-acl-extended/prefixed/Topic") == ["billing-"]


def test_acls_that_kafka_wrote_are_read(store: SqliteStore) -> None:
    acls = AclStore(store)
    acls.make_paths()
    store.create("/kafka-acl/Cluster")
    data = (
        b'{"version":1,"acls":[{"principal":"User:ops","permissionType":"Deny","operation":"ClusterAction",'
        b'"host":"10.0.0.1"}]}'
    )
    store.create("/kafka-acl/Cluster/kafka-cluster", data)

    [found] = acls.load()
    assert str(found) == "DENY User:ops from 10.0.0.1 CLUSTER_ACTION on CLUSTER kafka-cluster (LITERAL)"


def test_the_controller_is_notified_of_changes_only(store: SqliteStore) -> None:
    acls = AclStore(store)
    acls.add([acl("orders")])
    acls.add([acl("orders")])
    acls.add([acl("bill", pattern=PatternType.PREFIXED)])
    acls.delete([AclBindingFilter(name="nothing")])

    [plain] = store.children(ACL_CHANGES)
    [extended] = store.children(EXTENDED_ACL_CHANGES)
    assert store.get(f"{ACL_CHANGES}/{plain}").data == b"Topic:orders"
    changed = {"version": 1, "resourceType": "Topic", "name": "bill", "patternType": "PREFIXED"}
    assert json.loads(store.get(f"{EXTENDED_ACL_CHANGES}/{extended}").data) == changed


def test_a_change_is_notified_though_the_stores_answer_is_lost() -> None:
    store = MemoryStore(MemoryTree())
    acls = AclStore(store)
    acls.make_paths()
    acls.add([acl("orders")])
    for change in (
        lambda: acls.add([acl("orders", WRITE)]),
        lambda: acls.delete([AclBindingFilter(name="orders")]),
    ):
        for notice in store.children(ACL_CHANGES):
            store.delete(f"{ACL_CHANGES}/{notice}")
        store.lose_next_answer()
        with pytest.raises(ConnectionLoss):
            change()

        change()

        [notice] = store.children(ACL_CHANGES)
        assert store.get(f"{ACL_CHANGES}/{notice}").data == b"Topic:orders"


def test_deletion_returns_the_deleted_acls_of_each_filter(store: SqliteStore) -> None:
    acls = AclStore(store)
    acls.add([acl("orders"), acl("orders", WRITE), acl("others")])

    deleted = acls.delete(
        [AclBindingFilter(name="orders"), AclBindingFilter(operation=WRITE), AclBindingFilter(name="x")]
    )

    assert [len(each) for each in deleted] == [2, 1, 0]
    assert acls.load() == {acl("others")}
    assert store.children("/kafka-acl/Topic") == ["others"]


@pytest.mark.parametrize("name", ["a/b", "../topics", "CN=billing,OU=shop", "ü~%2F", ".", "..", "a b", "*"])
def test_a_name_may_have_any_characters(store: SqliteStore, name: str) -> None:
    acls = AclStore(store)
    acls.add([acl(name, resource_type=AclResourceType.GROUP)])

    assert acls.load() == {acl(name, resource_type=AclResourceType.GROUP)}
    assert acls.delete([AclBindingFilter(name=name)]) == [{acl(name, resource_type=AclResourceType.GROUP)}]


def test_concurrent_writers_lose_no_acls(store: SqliteStore) -> None:
    acls = AclStore(store)
    users = [f"User:{number}" for number in range(8)]
    threads = [
        threading.Thread(target=acls.add, args=([acl("orders", principal=user)],), daemon=True) for user in users
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert {each.principal for each in acls.load()} == {*users}


def test_a_node_that_cannot_be_read_is_named_since_it_might_deny_something(store: SqliteStore) -> None:
    acls = AclStore(store)
    acls.add([acl("orders")])
    store.set("/kafka-acl/Topic/orders", b'{"acls": [{"principal": "User:alice"}]}')

    with pytest.raises(StoreError, match="/kafka-acl/Topic/orders in the cluster store does not hold ACLs"):
        acls.load()
