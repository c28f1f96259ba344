"""SCRAM users over the wire: added, changed and deleted by Kafka's clients, and refused changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import scramp
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.admin import KafkaAdminClient
from kafka.admin import ScramMechanism as PythonMechanism
from kafka.admin import UserScramCredentialDeletion as PythonDeletion
from kafka.admin import UserScramCredentialUpsertion as PythonUpsertion
from kio.schema.errors import ErrorCode

from support.kafka.connection import Wire
from support.kafka.secured_broker import Secured
from support.patience import PATIENCE_S

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
DESCRIBE_CLIENT_QUOTAS, DESCRIBE, ALTER = 48, 50, 51
SHA_256, SHA_512 = 1, 2
SALT = b"0123456789ab"

NewName = Callable[[], str]


def upsertion(name: str, **fields: Any) -> dict[str, Any]:
    given = {"name": name, "mechanism": SHA_256, "iterations": 4096, "salt": SALT, "salted_password": b"x" * 32}
    return given | fields


def alter(wire: Wire, *upsertions: dict[str, Any], deletions: tuple[dict[str, Any], ...] = ()) -> dict[str, ErrorCode]:
    response = wire.send(ALTER, 0, upsertions=upsertions, deletions=deletions)
    return {result.user: result.error_code for result in response.results}


def describe(wire: Wire, *names: str) -> dict[str, dict[int, int] | ErrorCode]:
    """The iterations of each credential of each user, or the error."""
    response = wire.send(DESCRIBE, 0, users=[{"name": name} for name in names] or None)
    assert response.error_code == ErrorCode.none
    return {
        result.user: {info.mechanism: info.iterations for info in result.credential_infos} or result.error_code
        for result in response.results
    }


def can_log_in(secured: Secured, mechanism: str, user: str, password: str) -> bool:
    client = scramp.ScramClient([mechanism], user, password)
    with secured.wire("SASL_PLAINTEXT") as wire:
        wire.send(SASL_HANDSHAKE, 1, mechanism=mechanism)
        challenge = wire.send(SASL_AUTHENTICATE, 2, auth_bytes=client.get_client_first().encode())
        client.set_server_first(challenge.auth_bytes.decode())
        answer = wire.send(SASL_AUTHENTICATE, 2, auth_bytes=client.get_client_final().encode())
        return bool(answer.error_code == ErrorCode.none)


def test_librdkafka_adds_changes_and_deletes_users(secured: Secured, new_name: NewName) -> None:
    name = new_name()
    admin = AdminClient({"bootstrap.servers": secured.address("PLAINTEXT")})

    def change(*changes: Any) -> None:
        for outcome in admin.alter_user_scram_credentials(list(changes)).values():
            outcome.result(PATIENCE_S)

    def add(mechanism: ScramMechanism, iterations: int, password: str) -> UserScramCredentialUpsertion:
        return UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, iterations), password.encode())

    change(add(ScramMechanism.SCRAM_SHA_256, 4096, "one"), add(ScramMechanism.SCRAM_SHA_512, 8192, "two"))
    assert can_log_in(secured, "SCRAM-SHA-256", name, "one")
    assert can_log_in(secured, "SCRAM-SHA-512", name, "two")

    change(add(ScramMechanism.SCRAM_SHA_256, 4096, "other"))
    assert not can_log_in(secured, "SCRAM-SHA-256", name, "one")
    assert can_log_in(secured, "SCRAM-SHA-256", name, "other")

    [described] = admin.describe_user_scram_credentials([name]).values()
    infos = described.result(PATIENCE_S).scram_credential_infos
    assert {(info.mechanism, info.iterations) for info in infos} == {
        (ScramMechanism.SCRAM_SHA_256, 4096),
        (ScramMechanism.SCRAM_SHA_512, 8192),
    }

    change(UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256))
    assert not can_log_in(secured, "SCRAM-SHA-256", name, "other")
    assert can_log_in(secured, "SCRAM-SHA-512", name, "two")


def test_kafka_python_adds_and_deletes_users(secured: Secured, new_name: NewName) -> None:
    name = new_name()
    admin = KafkaAdminClient(bootstrap_servers=secured.address("PLAINTEXT"))
    try:
        admin.alter_user_scram_credentials([PythonUpsertion(name, PythonMechanism.SCRAM_SHA_512, "secret")])
        assert can_log_in(secured, "SCRAM-SHA-512", name, "secret")
        assert name in str(admin.describe_user_scram_credentials([name]))

        admin.alter_user_scram_credentials([PythonDeletion(name, PythonMechanism.SCRAM_SHA_512)])
        assert not can_log_in(secured, "SCRAM-SHA-512", name, "secret")
    finally:
        admin.close()


def test_who_has_a_short_salt_can_log_in(secured: Secured, new_name: NewName) -> None:
    name, where = new_name(), secured.address("PLAINTEXT")
    short = UserScramCredentialUpsertion(name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret", b"s")
    admin = AdminClient({"bootstrap.servers": where})
    for outcome in admin.alter_user_scram_credentials([short]).values():
        outcome.result(PATIENCE_S)

    login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": name, "sasl.password": "secret"}
    secure = {"bootstrap.servers": secured.address("SASL_PLAINTEXT"), "security.protocol": "SASL_PLAINTEXT", **login}
    assert AdminClient(secure).list_topics(timeout=PATIENCE_S).brokers


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"iterations": 4095}, ErrorCode.unacceptable_credential),
        ({"iterations": 16385}, ErrorCode.unacceptable_credential),
        ({"iterations": -1}, ErrorCode.unacceptable_credential),
        ({"salt": b""}, ErrorCode.unacceptable_credential),
        ({"mechanism": 0}, ErrorCode.unsupported_sasl_mechanism),
        ({"mechanism": 3}, ErrorCode.unsupported_sasl_mechanism),
    ],
)
def test_a_credential_that_would_not_do_is_refused(
    wire: Wire, new_name: NewName, fields: dict[str, Any], error: ErrorCode
) -> None:
    bad, good = new_name(), new_name()

    assert alter(wire, upsertion(bad, **fields), upsertion(good)) == {bad: error, good: ErrorCode.none}
    assert describe(wire, bad, good) == {bad: ErrorCode.resource_not_found, good: {SHA_256: 4096}}


def test_a_user_without_a_name_is_refused(wire: Wire) -> None:
    assert alter(wire, upsertion("")) == {"": ErrorCode.unacceptable_credential}


def test_the_same_credential_twice_is_refused_and_nothing_of_it_done(wire: Wire, new_name: NewName) -> None:
    name = new_name()

    assert alter(wire, upsertion(name), upsertion(name)) == {name: ErrorCode.duplicate_resource}
    deletion = {"name": name, "mechanism": SHA_256}
    assert alter(wire, upsertion(name), deletions=(deletion,)) == {name: ErrorCode.resource_not_found}
    assert describe(wire, name) == {name: ErrorCode.resource_not_found}


def test_only_what_is_there_can_be_deleted(wire: Wire, new_name: NewName) -> None:
    name = new_name()
    deletion = {"name": name, "mechanism": SHA_256}
    assert alter(wire, deletions=(deletion,)) == {name: ErrorCode.resource_not_found}
    alter(wire, upsertion(name), upsertion(name, mechanism=SHA_512))

    assert alter(wire, deletions=(deletion,)) == {name: ErrorCode.none}
    assert describe(wire, name) == {name: {SHA_512: 4096}}


def test_users_are_described_by_name_or_all(wire: Wire, new_name: NewName) -> None:
    one, other = new_name(), new_name()
    alter(wire, upsertion(one, iterations=5000), upsertion(other))

    assert describe(wire, one) == {one: {SHA_256: 5000}}
    assert describe(wire, one, one) == {one: ErrorCode.duplicate_resource}
    everybody = describe(wire)
    assert {name: everybody[name] for name in (one, other)} == {one: {SHA_256: 5000}, other: {SHA_256: 4096}}


@pytest.mark.parametrize("version", [0, 1])
def test_nobody_has_a_quota(wire: Wire, version: int) -> None:
    asked = [{"entity_type": "user", "match_type": 2, "match": None}]
    response = wire.send(DESCRIBE_CLIENT_QUOTAS, version, components=asked, strict=False)

    assert (response.error_code, response.entries) == (ErrorCode.none, ())
