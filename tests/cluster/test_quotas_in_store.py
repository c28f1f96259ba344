"""Client quotas in the cluster store."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sparklog.base.quotas import ClientQuota, QuotaChange, entity
from sparklog.cluster.config_nodes import CONFIG_CHANGES
from sparklog.cluster.quotas import QuotaStore
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.store import ensure_path
from sparklog.cluster.users import ScramCredential, ScramMechanism, UserStore

ENTITIES: list[tuple[dict[str, str | None], str]] = [
    ({"user": "alice"}, "users/alice"),
    ({"user": None}, "users/<default>"),
    ({"user": "CN=a b,O=*"}, "users/CN%3Da%20b%2CO%3D%2A"),
    ({"user": "<default>"}, "users/%3Cdefault%3E"),
    ({"user": "alice", "client-id": "etl"}, "users/alice/clients/etl"),
    ({"user": None, "client-id": None}, "users/<default>/clients/<default>"),
    ({"client-id": "etl"}, "clients/etl"),
    ({"client-id": None}, "clients/<default>"),
    ({"client-id": ".."}, "clients/%2E%2E"),
    ({"ip": "10.0.0.7"}, "ips/10.0.0.7"),
    ({"ip": None}, "ips/<default>"),
]


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    made = SqliteStore.open(":memory:")
    ensure_path(made, CONFIG_CHANGES)
    yield made
    made.close()


def set_quota(store: SqliteStore, parts: dict[str, str | None], **values: float) -> None:
    QuotaStore(store).change(QuotaChange(entity=entity(parts), values=values))


@pytest.mark.parametrize(("parts", "path"), ENTITIES)
def test_quotas_are_kept_where_kafka_keeps_them(store: SqliteStore, parts: dict[str, str | None], path: str) -> None:
    set_quota(store, parts, producer_byte_rate=1048576)
    assert json.loads(store.get(f"/config/{path}").data) == {"version": 1, "config": {"producer_byte_rate": "1048576"}}
    (notice,) = store.children(CONFIG_CHANGES)
    assert json.loads(store.get(f"{CONFIG_CHANGES}/{notice}").data) == {"version": 2, "entity_path": path}
    assert QuotaStore(store).load() == [ClientQuota(entity=entity(parts), values={"producer_byte_rate": 1048576})]


def test_quotas_of_all_entities_are_distinct(store: SqliteStore) -> None:
    for number, (parts, _) in enumerate(ENTITIES):
        set_quota(store, parts, request_percentage=number + 0.5)
    found = {quota.entity: quota.values["request_percentage"] for quota in QuotaStore(store).load()}
    assert found == {entity(parts): number + 0.5 for number, (parts, _) in enumerate(ENTITIES)}


def test_a_quota_is_removed_and_the_others_stay(store: SqliteStore) -> None:
    set_quota(store, {"user": "alice"}, producer_byte_rate=1, consumer_byte_rate=2)
    QuotaStore(store).change(QuotaChange(entity=entity({"user": "alice"}), removed=["producer_byte_rate"]))
    (quota,) = QuotaStore(store).load()
    assert quota.values == {"consumer_byte_rate": 2}
    QuotaStore(store).change(QuotaChange(entity=entity({"user": "alice"}), removed=["consumer_byte_rate"]))
    assert QuotaStore(store).load() == []


def test_a_user_keeps_the_password_beside_the_quota(store: SqliteStore) -> None:
    users = UserStore(store)
    credential = ScramCredential.of_password(ScramMechanism.SHA_256, "secret", b"salt", 4096)
    users.put("alice", ScramMechanism.SHA_256, credential)
    set_quota(store, {"user": "alice"}, producer_byte_rate=1)
    set_quota(store, {"user": "bob", "client-id": "x"}, producer_byte_rate=1)
    assert users.credentials("alice") == {ScramMechanism.SHA_256: credential}
    assert users.names() == ["alice"]
    assert users.delete("alice", ScramMechanism.SHA_256)
    assert len(QuotaStore(store).load()) == 2


def test_a_value_that_is_no_number_is_left_out_and_named(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    set_quota(store, {"user": "alice"}, producer_byte_rate=1)
    data = b'{"version":1,"config":{"producer_byte_rate":"much","consumer_byte_rate":"2"}}'
    store.set("/config/users/alice", data)
    (quota,) = QuotaStore(store).load()
    assert quota.values == {"consumer_byte_rate": 2}
    assert "/config/users/alice in the cluster store: producer_byte_rate = 'much' is no quota" in caplog.text
