"""SASL frame by frame: allowed requests before authentication, and attacks."""

from __future__ import annotations

import struct

import pytest
import scramp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from sparklog.client import Admin
from sparklog.testing import start_broker
from support.kafka.connection import Wire, request_frame
from support.kafka.secured_broker import PLAIN_PASSWORD, PLAIN_USER, SCRAM_PASSWORD, SCRAM_USER, Secured

METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 3, 17, 18, 36
DESCRIBE_CONFIGS, DESCRIBE_USER_SCRAM_CREDENTIALS = 32, 50
SCRAM_256 = "SCRAM-SHA-256"
PLAIN_TOKEN = f"\0{PLAIN_USER}\0{PLAIN_PASSWORD}".encode()
REFUSAL = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {SCRAM_256}"


def shake_hands(wire: Wire, mechanism: str, version: int = 1) -> None:
    response = wire.send(SASL_HANDSHAKE, version, mechanism=mechanism)
    assert response.error_code == ErrorCode.none
    assert response.mechanisms == ("PLAIN", SCRAM_256, "SCRAM-SHA-512")


def authenticate(wire: Wire, token: bytes, version: int = 2) -> object:
    return wire.send(SASL_AUTHENTICATE, version, auth_bytes=token)


def is_closed(wire: Wire) -> bool:
    try:
        wire.read_frame()
    except ConnectionError:
        return True
    return False


def asks_for_metadata(wire: Wire) -> bool:
    """Whether the connection serves requests of an authenticated client."""
    return len(wire.send(METADATA, 1, topics=()).brokers) == 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_has_shown_a_password_is_served(secured: Secured, version: int) -> None:
    with secured.wire("SASL_PLAINTEXT") as wire:
        assert wire.send(API_VERSIONS, 3, client_software_name="w", client_software_version="1").api_keys
        shake_hands(wire, "PLAIN")
        response = authenticate(wire, PLAIN_TOKEN, version)

        assert (response.error_code, response.error_message, response.auth_bytes) == (ErrorCode.none, None, b"")
        assert asks_for_metadata(wire)


@pytest.mark.parametrize(("user", "password"), [(SCRAM_USER, "wrong"), ("nobody", SCRAM_PASSWORD)])
def test_a_wrong_password_and_an_unknown_user_look_the_same(
    secured: Secured, user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = scramp.ScramClient([SCRAM_256], user, password)
    with secured.wire("SASL_SSL") as wire:
        shake_hands(wire, SCRAM_256)
        challenge = authenticate(wire, client.get_client_first().encode())
        assert challenge.error_code == ErrorCode.none
        client.set_server_first(challenge.auth_bytes.decode())
        refusal = authenticate(wire, client.get_client_final().encode())

        assert (refusal.error_code, refusal.error_message) == (ErrorCode.sasl_authentication_failed, REFUSAL)
        assert refusal.auth_bytes == b""
        assert is_closed(wire)
    assert f"127.0.0.1: user {user!r} could not log in by {SCRAM_256}" in caplog.text  # whoever operates it is told


def test_an_unknown_user_has_the_same_salt_each_time(secured: Secured) -> None:
    def salt_of(user: str) -> str:
        client = scramp.ScramClient([SCRAM_256], user, "x")
        with secured.wire("SASL_PLAINTEXT") as wire:
            shake_hands(wire, SCRAM_256)
            challenge = authenticate(wire, client.get_client_first().encode()).auth_bytes.decode()
        return challenge.partition(",s=")[2]

    assert salt_of("nobody") == salt_of("nobody") != salt_of("somebody")


def test_the_broker_proves_that_it_knows_the_password_too(secured: Secured) -> None:
    client = scramp.ScramClient([SCRAM_256], SCRAM_USER, SCRAM_PASSWORD)
    with secured.wire("SASL_PLAINTEXT") as wire:
        shake_hands(wire, SCRAM_256)
        client.set_server_first(authenticate(wire, client.get_client_first().encode()).auth_bytes.decode())
        client.set_server_final(authenticate(wire, client.get_client_final().encode()).auth_bytes.decode())

        assert asks_for_metadata(wire)


def test_after_a_handshake_of_version_0_messages_come_bare(secured: Secured) -> None:
    client = scramp.ScramClient([SCRAM_256], SCRAM_USER, SCRAM_PASSWORD)
    with secured.wire("SASL_PLAINTEXT") as wire:
        shake_hands(wire, SCRAM_256, version=0)
        wire.write_frame(client.get_client_first().encode())
        client.set_server_first(wire.read_frame().decode())
        wire.write_frame(client.get_client_final().encode())
        client.set_server_final(wire.read_frame().decode())

        assert asks_for_metadata(wire)


def test_a_bare_message_that_is_wrong_ends_the_connection(secured: Secured) -> None:
    with secured.wire("SASL_PLAINTEXT") as wire:
        shake_hands(wire, "PLAIN", version=0)
        wire.write_frame(b"\0alice\0wrong")

        assert is_closed(wire)


@pytest.mark.parametrize(
    "frame",
    [
        request_frame(METADATA, 1, topics=()),
        request_frame(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None),
        request_frame(SASL_AUTHENTICATE, 2, auth_bytes=PLAIN_TOKEN),
        struct.pack(">hhih", 9999, 0, 1, -1),
        b"\xff" * 32,
        PLAIN_TOKEN,
    ],
)
def test_a_stranger_who_sends_anything_else_is_cut_off(secured: Secured, frame: bytes) -> None:
    with secured.wire("SASL_PLAINTEXT") as wire:
        wire.write_frame(frame)

        assert is_closed(wire)


def test_a_stranger_is_cut_off_also_between_handshake_and_password(secured: Secured) -> None:
    with secured.wire("SASL_PLAINTEXT") as wire:
        shake_hands(wire, "PLAIN")
        wire.write(METADATA, 1, topics=())

        assert is_closed(wire)


def test_what_follows_a_wrong_password_is_not_served(secured: Secured) -> None:
    with secured.wire("SASL_PLAINTEXT") as wire:
        shake_hands(wire, "PLAIN")
        frames = [
            request_frame(SASL_AUTHENTICATE, 2, 7, auth_bytes=b"\0alice\0wrong"),
            request_frame(SASL_AUTHENTICATE, 2, 8, auth_bytes=PLAIN_TOKEN),
            request_frame(METADATA, 1, 9, topics=()),
        ]
        wire.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))

        refusal = wire.read(SASL_AUTHENTICATE, 2, 7)
        assert refusal.error_message == "Authentication failed: Invalid username or password"
        assert is_closed(wire)


def test_a_stranger_may_not_send_much(secured: Secured) -> None:
    with secured.wire("SASL_PLAINTEXT") as wire:
        wire.socket.sendall(struct.pack(">i", (512 << 10) + 1))

        assert is_closed(wire)


def test_an_unknown_mechanism_is_refused_with_those_that_there_are(secured: Secured) -> None:
    with secured.wire("SASL_PLAINTEXT") as wire:
        response = wire.send(SASL_HANDSHAKE, 1, mechanism="GSSAPI")

        assert response.error_code == ErrorCode.unsupported_sasl_mechanism
        assert response.mechanisms == ("PLAIN", SCRAM_256, "SCRAM-SHA-512")
        assert is_closed(wire)


def test_without_sasl_there_is_none(secured: Secured) -> None:
    with secured.wire("PLAINTEXT") as wire:
        assert wire.send(SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == ErrorCode.illegal_sasl_state
        assert authenticate(wire, PLAIN_TOKEN).error_code == ErrorCode.illegal_sasl_state
        assert asks_for_metadata(wire)


def test_a_password_can_be_shown_again_and_by_the_same_user_only(secured: Secured) -> None:
    with secured.wire("SASL_PLAINTEXT") as wire:
        for _ in range(2):
            shake_hands(wire, "PLAIN")
            assert authenticate(wire, PLAIN_TOKEN).error_code == ErrorCode.none
            assert asks_for_metadata(wire)

        assert authenticate(wire, PLAIN_TOKEN).error_code == ErrorCode.illegal_sasl_state


def test_a_session_that_ran_out_is_cut_off() -> None:
    user = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="open sesame";'
    with (
        start_broker(
            listeners=("SASL_PLAINTEXT://127.0.0.1:0",), plain_sasl_jaas_config=user, connections_max_reauth_ms=1
        ) as broker,
        Wire(broker.node.kafka_addresses["SASL_PLAINTEXT"]) as wire,
    ):
        shake_hands(wire, "PLAIN")
        assert authenticate(wire, PLAIN_TOKEN).session_lifetime.total_seconds() == 0.001

        def is_cut_off() -> bool:
            wire.write(METADATA, 1, topics=())
            return is_closed(wire)

        assert any(is_cut_off() for _ in range(1_000))  # once its millisecond is over


HOSTILE = (
    st.binary(max_size=200)
    | st.text(alphabet="nyp,=arscpi0\0é", max_size=60).map(str.encode)
    | st.just(b"n,,n=a,r=" + b"x" * 100_000)
)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM_256])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tokens=st.lists(HOSTILE, min_size=1, max_size=2))
def test_garbage_never_gets_in(
    secured: Secured, caplog: pytest.LogCaptureFixture, mechanism: str, tokens: list[bytes]
) -> None:
    with secured.wire("SASL_PLAINTEXT") as wire:
        shake_hands(wire, mechanism)
        for token in tokens:
            response = authenticate(wire, token)
            if response.error_code != ErrorCode.none:
                assert response.error_code == ErrorCode.sasl_authentication_failed
                break
        wire.write(METADATA, 1, topics=())

        assert is_closed(wire)
    assert "Traceback" not in caplog.text


def test_secrets_are_not_among_the_configurations_that_are_shown(secured: Secured) -> None:
    with secured.wire("PLAINTEXT") as wire:
        resource = {"resource_type": 4, "resource_name": "0", "configuration_keys": None}
        [described] = wire.send(DESCRIBE_CONFIGS, 4, resources=[resource], include_documentation=True).results
    with Admin(bootstrap_servers=secured.broker.bootstrap) as admin:
        over_grpc = admin.describe_configs(broker=0)

    assert {"plain.sasl.jaas.config", "ssl.key.password"} <= {entry.name for entry in described.configs}
    assert PLAIN_PASSWORD not in f"{described} {over_grpc}"
