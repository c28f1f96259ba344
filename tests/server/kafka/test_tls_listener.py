"""A listener with TLS, and clients without TLS or with wrong certificates."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.server.kafka import listener
from sparklog.testing import RunningBroker, start_broker
from support.kafka.connection import Wire
from support.kafka.secured_broker import Secured
from support.patience import PATIENCE_S, wait_until

API_VERSIONS = 18


def connect(broker: RunningBroker, keys: Path, own: str = "") -> Wire:
    wire = Wire(broker.node.kafka_addresses["SSL"])
    context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    if own:
        context.load_cert_chain(keys / own)
    wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
    return wire


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, "the broker has taken notice", every_s=0.002)


def is_served(broker: RunningBroker, keys: Path, own: str = "") -> bool:
    try:
        with connect(broker, keys, own) as wire:
            return bool(wire.send(API_VERSIONS, 0).api_keys)
    except (ssl.SSLError, ConnectionError):
        return False


@contextlib.contextmanager
def broker_that(keys: Path, client_auth: str) -> Iterator[RunningBroker]:
    with start_broker(
        listeners=("SSL://127.0.0.1:0",),
        ssl_keystore_location=str(keys / "server.pem"),
        ssl_truststore_location=str(keys / "ca.pem"),
        ssl_client_auth=client_auth,
    ) as broker:
        yield broker


@pytest.mark.parametrize(
    ("client_auth", "without", "with_one", "with_a_strangers"),
    [("none", True, True, True), ("requested", True, True, False), ("required", False, True, False)],
)
def test_clients_show_certificates_as_the_broker_wants(
    keys: Path, client_auth: str, without: bool, with_one: bool, with_a_strangers: bool
) -> None:
    with broker_that(keys, client_auth) as broker:
        assert is_served(broker, keys) is without
        assert is_served(broker, keys, "client.pem") is with_one
        assert is_served(broker, keys, "stranger.pem") is with_a_strangers


def test_a_client_with_a_certificate_has_its_name(keys: Path) -> None:
    with broker_that(keys, "required") as broker, connect(broker, keys, "client.pem") as wire:
        wire.send(API_VERSIONS, 0)
        [connection] = broker.node._kafka.connections

        name = connection.session.principal  # trustme puts an OU of its own between
        assert (name.split(",OU=")[0], name.split(",")[-1]) == ("User:CN=client", "O=Example")


@pytest.mark.parametrize("sent", [b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_client_without_tls_is_cut_off(secured: Secured, sent: bytes) -> None:
    address = secured.broker.node.kafka_addresses["SSL"]
    with socket.create_connection(tuple(address), timeout=PATIENCE_S) as stranger:
        stranger.sendall(sent)
        with contextlib.suppress(ConnectionError):
            while stranger.recv(1024):  # an alert may come before the end
                continue


def test_a_client_with_tls_is_cut_off_where_there_is_none(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=str(secured.keys / "ca.pem"))
    wire = secured.wire("PLAINTEXT")

    with wire, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(wire.socket, server_hostname="localhost")


def test_a_client_that_never_finishes_its_handshake_is_cut_off(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with broker_that(keys, "none") as broker:
        address = tuple(broker.node.kafka_addresses["SSL"])
        with monkeypatch.context() as patched:
            patched.setattr(listener, "HANDSHAKE_TIMEOUT_S", 0.05)
            with socket.create_connection(address, timeout=PATIENCE_S) as silent:
                silent.sendall(b"\x16\x03\x01")  # the beginning of a handshake

                assert silent.recv(1) == b""
        assert is_served(broker, keys)


def test_a_certificate_whose_name_cannot_be_read_ends_its_connection_alone(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise ValueError("no text")

    with broker_that(keys, "required") as broker:
        with monkeypatch.context() as patched:
            patched.setattr(listener, "principal_of", fail)
            assert not is_served(broker, keys, "client.pem")
        assert is_served(broker, keys, "client.pem")
        until(lambda: broker.node.broker.metrics.listeners["SSL"].open == 0)
