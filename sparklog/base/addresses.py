"""Network addresses as people write them: HOST:PORT, with an IPv6 host in brackets."""

from __future__ import annotations

from typing import NamedTuple

from sparklog.base.errors import ConfigError

DEFAULT_GRPC_ADDRESS = "127.0.0.1:9094"
"""Default address of a broker's gRPC listener, for brokers and clients."""
DEFAULT_KAFKA_ADDRESS = "127.0.0.1:9092"
"""Default address of a broker's listener for Kafka's protocol."""


class Address(NamedTuple):
    """A host, without brackets, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, key: str) -> Address:
        """Return the address in HOST:PORT. Raises ConfigError, naming the configuration key `key`, for another form."""
        host, colon, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not (colon and bare and port.isascii() and port.isdigit() and int(port) <= 65535):
            raise ConfigError(f"{key} = {text!r}: it must be HOST:PORT")
        if ":" in bare and bare == host:
            raise ConfigError(f"{key} = {text!r}: an IPv6 host is written in brackets, as [::1]:9094")
        return cls(bare, int(port))
