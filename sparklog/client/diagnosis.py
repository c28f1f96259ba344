"""Finds out with plain sockets why no gRPC listener answers at an address.

gRPC's own messages do not distinguish a Kafka listener from one that needs TLS, or an unknown authority from a listener
without TLS. A probe makes a few connections, one after another: does anything listen, does it speak TLS, which protocol
does it speak, and does each side accept the other's certificate? Use it for messages to people only: it takes up to
PROBE_S, and the broker's log may show its connections.
"""

from __future__ import annotations

import dataclasses
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sparklog.base.addresses import Address
from sparklog.client.config import ClientConfig

PROBE_S = 2.0
STEP_S = 0.4
"""How long one connection waits for an answer."""
GRPC = "gRPC"
SILENT = "nothing"


class ProbedProtocol(NamedTuple):
    """The first bytes that a client of the protocol sends, and a test of the first bytes of the answer."""

    name: str
    question: bytes
    is_answer: Callable[[bytes], bool]


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # and empty settings
_API_VERSIONS = b"\x00\x00\x00\x0a\x00\x12\x00\x00prob\xff\xff"  # version 0, correlation id `prob`, no client id
_FIRST_BYTES = 9
_PROTOCOLS = (
    ProbedProtocol(GRPC, _PREFACE, lambda start: start[3:4] == b"\x04" and start[5:] == bytes(4)),  # settings
    ProbedProtocol("Kafka's protocol", _API_VERSIONS, lambda start: start[4:8] == b"prob"),
    ProbedProtocol("HTTP", b"HEAD / HTTP/1.0\r\n\r\n", lambda start: start.startswith(b"HTTP/")),
)


def diagnose(address: str, options: Mapping[str, Any]) -> str:
    """Return why no gRPC listener answers at `address`, and what to do about it; empty if the probe cannot tell.

    `options` are those of any client.
    """
    known = {field.name for field in dataclasses.fields(ClientConfig)}
    config = ClientConfig.parse({name: value for name, value in options.items() if name in known})
    found: list[str] = []
    # A thread, because looking up a host name has no time-out.
    probe = threading.Thread(target=lambda: found.append(_ListenerProbe(address, config).result()), daemon=True)
    probe.start()
    probe.join(PROBE_S)
    return found[0] if found else ""


class _ListenerProbe:
    def __init__(self, address: str, config: ClientConfig) -> None:
        self._address = Address.parse(address, "bootstrap_servers")
        self._config = config

    def result(self) -> str:
        return self._unreachable() or self._mismatch()

    def _unreachable(self) -> str:
        """Return why no connection can be made; empty if one can."""
        try:
            self._connect().close()
        except ConnectionRefusedError:
            return "nothing listens there: start one with: sparklog up"
        except socket.gaierror as unknown:
            return f"the name of the host cannot be looked up: {unknown.strerror}"
        except TimeoutError:
            return "the host does not answer"
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _mismatch(self) -> str:
        """Return how the listener differs from what the client expects; empty if it does not."""
        wants_tls = self._config.security_protocol.endswith("SSL")
        if not self._speaks_tls():
            protocol = self._detect_protocol(self._connect)
            if protocol == GRPC:
                return "it speaks gRPC without TLS: leave security.protocol=SSL out of --client-config" * wants_tls
            return _describe_answer(protocol)
        protocol = self._detect_protocol(lambda: self._connect_tls(verify=False))
        if protocol not in (GRPC, SILENT, ""):
            return _describe_answer(f"{protocol} with TLS")
        return self._tls_refusal() if wants_tls else "it speaks TLS: give security.protocol=SSL with --client-config"

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self._address, PROBE_S)
        connection.settimeout(STEP_S)
        return connection

    def _connect_tls(self, *, verify: bool) -> ssl.SSLSocket:
        """Connect with the client's keys; trust anybody unless `verify`."""
        context = ssl.create_default_context(cafile=self._config.ssl_truststore_location or None)
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self._config.ssl_keystore_location:
            context.load_cert_chain(self._config.ssl_keystore_location)
        context.set_alpn_protocols(["h2"])
        plain = self._connect()
        try:
            return context.wrap_socket(plain, server_hostname=self._address.host)
        except BaseException:
            plain.close()
            raise

    def _speaks_tls(self) -> bool:
        """Return whether a handshake begins, even if it ends with an alert because the client has no certificate."""
        try:
            self._connect_tls(verify=False).close()
        except ssl.SSLError as refused:
            return "ALERT" in (refused.reason or "")
        except OSError:
            return False
        return True

    def _detect_protocol(self, connect: Callable[[], socket.socket]) -> str:
        """Return the first protocol that is answered: SILENT without an answer, empty if each connection ends."""
        answer = SILENT
        for protocol in _PROTOCOLS:
            try:
                with connect() as connection:
                    if _answers_protocol(connection, protocol):
                        return protocol.name
                answer = ""
            except TimeoutError:
                continue
            except OSError:
                answer = ""
        return answer

    def _tls_refusal(self) -> str:
        """Return why the handshake of a client with this configuration fails; empty if it does not."""
        try:
            with self._connect_tls(verify=True) as connection:
                # With TLS 1.3 a refused client learns of it when it reads.
                if _answers_protocol(connection, _PROTOCOLS[0]):
                    return ""
                why = "it hangs up"
        except ssl.SSLCertVerificationError as unknown:
            why = unknown.verify_message.rstrip(".")
            return f"its certificate is not accepted: {why}: see ssl.truststore.location in --client-config"
        except OSError as error:
            why = (getattr(error, "reason", None) or "it hangs up").replace("_", " ").lower()
        if self._config.ssl_keystore_location:
            return f"it refuses the client's certificate ({why}): see ssl.keystore.location in --client-config"
        return f"it wants a certificate of the client ({why}): give ssl.keystore.location with --client-config"


def _answers_protocol(connection: socket.socket, protocol: ProbedProtocol) -> bool:
    connection.sendall(protocol.question)
    start = b""
    while len(start) < _FIRST_BYTES and (more := connection.recv(_FIRST_BYTES - len(start))):
        start += more
    return protocol.is_answer(start)


def _describe_answer(protocol: str) -> str:
    if protocol == SILENT:
        return "it takes connections and does not answer: the broker hangs, or what listens there is no broker"
    if protocol:
        return f"it speaks {protocol}, not gRPC: name the broker's gRPC listener with --bootstrap"
    return "what listens there is no broker: it answers neither gRPC nor Kafka's protocol nor HTTP"
