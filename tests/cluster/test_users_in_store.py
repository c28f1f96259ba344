"""SCRAM credentials in the cluster store."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.store import ensure_path
from sparklog.cluster.users import ScramCredential, ScramMechanism, UserStore

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    made = SqliteStore.open(":memory:")
    yield made
    made.close()


def credential(mechanism: ScramMechanism = SHA_256, password: str = "pencil") -> ScramCredential:
    return ScramCredential.of_password(mechanism, password, b"0123456789ab", 4096)


def test_the_keys_are_those_of_rfc_7677() -> None:
    # salt, iterations and password of its example; the keys from any other implementation of it
    made = ScramCredential.parse(
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )

    assert ScramCredential.of_password(SHA_256, "pencil", made.salt, made.iterations) == made


def test_credentials_are_kept_in_kafkas_form(store: SqliteStore) -> None:
    users = UserStore(store)
    users.put("alice", SHA_256, credential())

    kept = json.loads(store.get("/config/users/alice").data)

    assert kept == {"version": 1, "config": {"SCRAM-SHA-256": str(credential())}}
    assert users.credentials("alice") == {SHA_256: credential()}


def test_each_mechanism_has_a_credential_of_its_own(store: SqliteStore) -> None:
    users = UserStore(store)
    users.put("alice", SHA_256, credential())
    users.put("alice", SHA_512, credential(SHA_512))
    users.put("alice", SHA_256, credential(password="newer"))

    assert users.credentials("alice") == {SHA_256: credential(password="newer"), SHA_512: credential(SHA_512)}
    assert users.delete("alice", SHA_256)
    assert not users.delete("alice", SHA_256)
    assert users.credentials("alice") == {SHA_512: credential(SHA_512)}


def test_other_keys_of_a_user_stay(store: SqliteStore) -> None:
    ensure_path(store, "/config/users")
    store.create("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"1024"}}')
    users = UserStore(store)
    users.put("alice", SHA_256, credential())
    users.delete("alice", SHA_256)

    assert json.loads(store.get("/config/users/alice").data)["config"] == {"producer_byte_rate": "1024"}
    assert users.names() == []


@pytest.mark.parametrize("name", ["a/b", "../topics", "CN=billing,OU=shop", "ü~%2F", "."])
def test_a_name_may_have_any_characters(store: SqliteStore, name: str) -> None:
    users = UserStore(store)
    users.put(name, SHA_256, credential())

    assert users.names() == [name]
    assert users.credentials(name) == {SHA_256: credential()}
    assert store.children("/config") == ["users"]
