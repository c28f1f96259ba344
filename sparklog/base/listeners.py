"""Parses the listeners in a broker's configuration (org.apache.kafka.network.EndPoint, SocketServerConfigs).

    listeners                         NAME://HOST:PORT, …; an IPv6 host in brackets; no host: all interfaces
    advertised.listeners              the addresses for clients, by listener name; default: the listener's own address
    listener.security.protocol.map    NAME:PROTOCOL, …; the default maps each protocol's name to that protocol

Names are not case-sensitive, and become capitals. A listener on all interfaces is advertised under the machine's name.
As in Apache Kafka, 0.0.0.0 and [::] must not be advertised, and two listeners may share a port only if one has an IPv4
and the other an IPv6 address; port 0 is any free one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparklog.base.addresses import Address
from sparklog.base.errors import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address that serves Kafka's protocol."""

    name: str
    address: Address
    """Address to bind; an empty host is all interfaces, port 0 any free one."""
    protocol: str
    """One of PROTOCOLS."""
    advertised: Address
    """Address for clients; port 0: the port of `address`, which is not chosen yet."""

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted: SSL and SASL_SSL."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in by SASL: SASL_PLAINTEXT and SASL_SSL."""
        return self.protocol.startswith("SASL")


def parse_listeners(
    listeners: Iterable[str], advertised: Iterable[str], protocol_map: Iterable[str], machine_name: str
) -> tuple[Listener, ...]:
    """Return the listeners, in the order of `listeners`. Raises ConfigError if they are invalid."""
    protocols = protocols_of(protocol_map)
    addresses = _addresses("listeners", listeners)
    given = _addresses("advertised.listeners", advertised)
    _check_ports(addresses)
    for name in given:
        if name not in addresses:
            raise ConfigError(f"advertised.listeners names {name}, which is not among listeners")
    found = []
    for name, address in addresses.items():
        if name not in protocols:
            raise ConfigError(
                f"listeners: no security protocol is known for {name}; name it in listener.security.protocol.map, "
                f"as {name}:PLAINTEXT"
            )
        address_for_clients = given.get(name) or address._replace(host=address.host or machine_name)
        _check_advertised(name, address_for_clients, is_given=name in given)
        found.append(Listener(name=name, address=address, protocol=protocols[name], advertised=address_for_clients))
    return tuple(found)


def protocols_of(entries: Iterable[str]) -> Mapping[str, str]:
    """Return protocols by listener name from listener.security.protocol.map. Raises ConfigError if it is invalid."""
    found: dict[str, str] = {}
    for entry in entries:
        name, _, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not name or protocol not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {entry!r} must be NAME:PROTOCOL, the protocol one of "
                + ", ".join(PROTOCOLS)
            )
        if name in found:
            raise ConfigError(f"listener.security.protocol.map names {name} twice")
        found[name] = protocol
    return found


def _addresses(key: str, entries: Iterable[str]) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for entry in entries:
        name, separator, address = entry.strip().partition("://")
        if not (separator and name):
            raise ConfigError(f"{key}: {entry!r} must be NAME://HOST:PORT")
        if name.upper() in found:
            raise ConfigError(f"{key} names {name.upper()} twice")
        host, colon, port = address.rpartition(":")
        everywhere = colon and not host
        parsed = Address.parse(f"all:{port}" if everywhere else address, key)
        found[name.upper()] = parsed._replace(host="") if everywhere else parsed
    return found


def _check_ports(addresses: Mapping[str, Address]) -> None:
    names: dict[int, list[str]] = {}
    for name, address in addresses.items():
        if address.port:
            names.setdefault(address.port, []).append(name)
    for port, sharing in names.items():
        families = {_ip_version(addresses[name].host) for name in sharing}
        if len(sharing) > 1 and not (len(sharing) == 2 and families == {4, 6}):
            raise ConfigError(f"listeners: {' and '.join(sharing)} have the same port {port}")


def _check_advertised(name: str, address: Address, *, is_given: bool) -> None:
    if not address.host:
        raise ConfigError(f"advertised.listeners: {name} has no host, which clients need")
    if address.port == 0 and is_given:
        raise ConfigError(f"advertised.listeners: {name} has port 0, where no client can connect")
    if _ip_version(address.host) and ipaddress.ip_address(address.host).is_unspecified:
        raise ConfigError(
            f"{address} of {name} is no address that clients can connect to: name one in advertised.listeners"
        )


def _ip_version(host: str) -> int:
    """Return 4 or 6 for an IP address, 0 for a name."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0
