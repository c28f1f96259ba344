"""Client quotas: limits of users, clients and addresses at a broker (KIP-13, KIP-55, KIP-124, KIP-599, KIP-612).

A quota belongs to an entity: a user, a client id, both, or an address. An entity part without a name is the default for
users, clients or addresses without a quota of their own:

    user alice, client-id etl       this client of this user
    user alice                      all clients of this user together
    user (default)                  each user, on its own
    ip 10.0.0.7                     this address

Names are those of Kafka's protocol (DescribeClientQuotas, AlterClientQuotas).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import ip_address
from math import isfinite

from sparklog.base.errors import InvalidRequest, UnsupportedVersion

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
UNITS: Mapping[str, str] = {
    PRODUCER_BYTE_RATE: "bytes per second, of Produce requests to one broker",
    CONSUMER_BYTE_RATE: "bytes per second, of Fetch responses of one broker",
    REQUEST_PERCENTAGE: "percent of one broker's event loop",
    CONTROLLER_MUTATION_RATE: "partitions created and deleted per second",
    CONNECTION_CREATION_RATE: "connections per second to one broker",
}
"""The unit of a quota's value, by its key."""
_WHOLE = {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE}
"""Keys whose values are whole numbers in Kafka."""
_CLIENT_KEYS = UNITS.keys() - {CONNECTION_CREATION_RATE}
_TYPES = {USER, CLIENT_ID, IP}


@dataclass(frozen=True, slots=True, order=True)
class EntityPart:
    """One part of an entity: its type, and its name."""

    type: str
    name: str | None
    """None: the default."""

    def __str__(self) -> str:
        return f"{self.type} {'(default)' if self.name is None else self.name}"


Entity = tuple[EntityPart, ...]
"""An entity, with its parts sorted by type."""


def entity(parts: Mapping[str, str | None]) -> Entity:
    """Return an entity. parts: names by type, in any order"""
    return tuple(EntityPart(type, parts[type]) for type in sorted(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuota:
    """The quotas of one entity."""

    entity: Entity
    values: Mapping[str, float]
    """By key, such as producer_byte_rate; never empty."""


class QuotaMatch(IntEnum):
    """The way in which a filter selects names, numbered as in Kafka's protocol."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2
    """Every name, and the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFilter:
    """Selects entities that have a part of the type."""

    type: str
    match: QuotaMatch = QuotaMatch.ANY
    name: str | None = None
    """The name for EXACT; otherwise None."""

    def matches(self, part: EntityPart) -> bool:
        """Return whether the filter selects an entity part of its type."""
        if self.match is QuotaMatch.ANY:
            return True
        return part.name == (self.name if self.match is QuotaMatch.EXACT else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """Quotas to set, and others to remove, of one entity."""

    entity: Entity
    values: Mapping[str, float] = field(default_factory=dict)
    removed: Sequence[str] = ()

    def check(self) -> None:
        """Raise InvalidRequest or UnsupportedVersion, as Kafka does, if the change is invalid."""
        check_types([part.type for part in self.entity])
        if not self.entity:
            raise InvalidRequest("Invalid empty client quota entity")
        for part in self.entity:
            _check_name(part)
        is_ip = self.entity[0].type == IP
        allowed = {CONNECTION_CREATION_RATE} if is_ip else _CLIENT_KEYS
        for key in (*self.values, *self.removed):
            if key not in allowed:
                raise InvalidRequest(f"Invalid configuration key {key}: one of {', '.join(sorted(allowed))}")
        for key, value in self.values.items():
            _check_value(key, value)


def check_types(types: Sequence[str]) -> None:
    """Raise InvalidRequest or UnsupportedVersion if an entity cannot have parts of these types."""
    for number, type_ in enumerate(types):
        if type_ not in _TYPES:
            raise UnsupportedVersion(f"Custom entity type '{type_}' not supported")
        if type_ in types[:number]:
            raise InvalidRequest(f"Duplicate entity type: {type_}")
    if IP in types and len(types) > 1:
        raise InvalidRequest("Invalid entity filter: IP filter component should not be used with user or client-id")


def select(quotas: Sequence[ClientQuota], filters: Sequence[QuotaFilter], *, strict: bool) -> list[ClientQuota]:
    """Return the quotas of entities that all filters select, sorted by entity; without filters all of them.

    strict: only entities without a part of any other type
    """
    found = []
    for quota in quotas:
        parts = {part.type: part for part in quota.entity}
        if strict and len(parts) > len(filters):
            continue
        if all(each.type in parts and each.matches(parts[each.type]) for each in filters):
            found.append(quota)
    return sorted(found, key=lambda quota: [(part.type, part.name or "") for part in quota.entity])


def _check_name(part: EntityPart) -> None:
    if part.name == "":
        raise InvalidRequest(f"Empty {part.type} not supported")
    if part.type == IP and part.name is not None:
        try:
            ip_address(part.name)
        except ValueError:
            raise InvalidRequest(f"{part.name} is not a valid IP address: quotas are not kept for host names") from None


def _check_value(key: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise InvalidRequest(f"{key} = {value:g}: it must be above 0; remove the quota to allow everything")
    if key in _WHOLE and abs(value - round(value)) > 1e-6:
        raise InvalidRequest(f"Configuration {key} must be a whole number, not {value:g}")
