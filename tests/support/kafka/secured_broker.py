"""A broker with a listener of every security protocol, and its users."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from sparklog.cluster.users import ScramCredential, ScramMechanism
from sparklog.testing import RunningBroker
from support.kafka.connection import Wire

PLAIN_USER, PLAIN_PASSWORD = "alice", "open sesame"
SCRAM_USER, SCRAM_PASSWORD = "bob", "swordfish"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{PLAIN_USER}="{PLAIN_PASSWORD}";'
MECHANISMS = {
    "PLAIN": (PLAIN_USER, PLAIN_PASSWORD),
    "SCRAM-SHA-256": (SCRAM_USER, SCRAM_PASSWORD),
    "SCRAM-SHA-512": (SCRAM_USER, SCRAM_PASSWORD),
}
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Secured:
    """The broker, and the folder with server.pem, client.pem, stranger.pem and ca.pem."""

    broker: RunningBroker
    keys: Path

    def address(self, protocol: str) -> str:
        return str(self.broker.node.kafka_addresses[protocol])

    def wire(self, protocol: str) -> Wire:
        """A connection on which nothing was sent but, where it is wanted, TLS."""
        wire = Wire(self.broker.node.kafka_addresses[protocol])
        if protocol.endswith("SSL"):
            context = ssl.create_default_context(cafile=str(self.keys / "ca.pem"))
            wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
        return wire

    def add_scram_user(self, name: str, password: str) -> None:
        users = self.broker.node.broker.services.users
        for mechanism in ScramMechanism:
            users.put(name, mechanism, ScramCredential.of_password(mechanism, password, b"0123456789abcdef", 4096))
