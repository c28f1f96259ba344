"""Detection of listeners without authentication and authorization."""

from __future__ import annotations

from sparklog.base.addresses import Address
from sparklog.base.config import BrokerConfig
from sparklog.base.listeners import parse_listeners


def open_listeners(config: BrokerConfig) -> list[str]:
    """Return the listeners beyond this machine without authentication; none if there is an authorizer.

    Raises ConfigError if a listener is invalid.
    """
    if config.authorizer_class_name:
        return []  # ACLs limit an anonymous client
    found = [f"grpc.listener {config.grpc_listener}"] if is_grpc_open(config) else []
    map_, told = config.listener_security_protocol_map, config.advertised_listeners
    for listener in parse_listeners(config.listeners, told, map_, "localhost"):
        has_certificates = listener.has_tls and config.ssl_client_auth == "required"
        if not (listener.has_sasl or has_certificates or _is_loopback(listener.address.host)):
            found.append(f"{listener.name}://{listener.address}")
    return found


def is_grpc_open(config: BrokerConfig) -> bool:
    """Return whether gRPC listens beyond this machine without authentication."""
    protocol = config.grpc_security_protocol
    asks = protocol.startswith("SASL_") or (protocol == "SSL" and config.ssl_client_auth == "required")
    return not (asks or _is_loopback(Address.parse(config.grpc_listener, "grpc.listener").host))


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
