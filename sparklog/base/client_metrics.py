"""Subscriptions to the metrics of clients: which clients push which of their metrics, and how often (KIP-714).

A subscription has a name and the keys of `ClientMetricsConfig`. A client pushes the metrics of all subscriptions that
match it, at the shortest of their intervals (org.apache.kafka.server.ClientMetricsManager).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from sparklog.base.config_keys import MINUTE_MS, declared_keys, integer, key, nearest, words
from sparklog.base.errors import ConfigError, InvalidConfig, InvalidRegularExpression, InvalidRequest
from sparklog.base.ids import encode_id
from sparklog.base.pattern import Pattern, compile_pattern

ALL_METRICS = "*"
"""Selects every metric, in place of prefixes of names."""
SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
DEFAULT_INTERVAL_MS = 5 * MINUTE_MS
MAX_METRICS = 1_000
ClientMetricsConfigs = Mapping[str, Mapping[str, str]]
"""The keys of subscriptions, by name."""
MAX_LENGTH = 256
"""Maximum characters of a client's texts that a broker keeps; clients may send names of 32 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsConfig:
    """The keys of a subscription (org.apache.kafka.server.metrics.ClientMetricsConfigs)."""

    interval_ms: int = key(DEFAULT_INTERVAL_MS, integer(100, 60 * MINUTE_MS), "How often clients push their metrics.")
    metrics: tuple[str, ...] = key(
        (), words(), "Prefixes of the names of the metrics that clients push; *: all of them; empty: none."
    )
    match: tuple[str, ...] = key(
        (),
        words(),
        f"The clients, as SELECTOR=REGULAR EXPRESSION for the whole of a value; a client must match all of them. "
        f"Empty: every client. Selectors: {', '.join(SELECTORS)}.",
    )

    @classmethod
    def parse(cls, configs: Mapping[str, str]) -> ClientMetricsConfig:
        """Return the keys' values. Raises InvalidRequest for an unknown key or an invalid value, and InvalidConfig for
        an invalid selector."""
        values = {}
        for name, text in configs.items():
            if name not in CLIENT_METRICS_KEYS:
                known = nearest(name, CLIENT_METRICS_KEYS)
                raise InvalidRequest(f"Unknown client metrics configuration: {name}{known}")
            declared = CLIENT_METRICS_KEYS[name]
            try:
                values[declared.field] = declared.parse(text)
            except ConfigError as wrong:
                raise InvalidRequest(str(wrong)) from None
        config = cls(**values)
        if len(config.metrics) > MAX_METRICS:
            raise InvalidConfig(f"metrics has {len(config.metrics)} prefixes, the limit is {MAX_METRICS}")
        config.patterns()
        return config

    def patterns(self) -> dict[str, Pattern]:
        """Return the compiled expressions by selector; of two for one selector, the last. Raises InvalidConfig."""
        found = {}
        for each in self.match:
            selector, equals, text = (part.strip() for part in each.partition("="))
            if selector not in SELECTORS or not equals:
                raise InvalidConfig(f"match: {each!r} must be SELECTOR=EXPRESSION, of {', '.join(SELECTORS)}")
            try:
                found[selector] = compile_pattern(text)
            except InvalidRegularExpression as wrong:
                raise InvalidConfig(f"match: {wrong}") from None
        return found


CLIENT_METRICS_KEYS = declared_keys(ClientMetricsConfig)


class ClientInstance(NamedTuple):
    """A client's properties, from its connection. Texts have at most MAX_LENGTH characters."""

    client_id: str
    software_name: str
    software_version: str
    source_address: str
    source_port: int

    @classmethod
    def of(cls, client_id: str, software_name: str, software_version: str, address: str, port: int) -> ClientInstance:
        """Return the client, with its texts cut to MAX_LENGTH."""
        end = MAX_LENGTH
        return cls(client_id[:end], software_name[:end], software_version[:end], address[:end], port)

    def selected_by(self, instance_id: UUID) -> dict[str, str]:
        """Return the client's values by selector."""
        return {
            "client_instance_id": encode_id(instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.source_address,
            "client_source_port": str(self.source_port),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsSubscription:
    """One subscription."""

    interval_ms: int
    metrics: tuple[str, ...]
    match: Mapping[str, Pattern] = field(default_factory=dict)

    @classmethod
    def of(cls, config: ClientMetricsConfig) -> ClientMetricsSubscription:
        """Return the subscription with these keys. Raises InvalidConfig if an expression of `match` is not valid."""
        return cls(interval_ms=config.interval_ms, metrics=config.metrics, match=config.patterns())

    def matches(self, client: Mapping[str, str]) -> bool:
        """Return whether all expressions match the client; one without expressions matches all.

        client: its values by selector; it must have all selectors
        """
        return all(pattern.matches(client[selector]) for selector, pattern in self.match.items())


class InstanceSubscription(NamedTuple):
    """The metrics that one client pushes."""

    interval_ms: int
    metrics: tuple[str, ...]
    """Prefixes, sorted; (ALL_METRICS,): all; empty: nothing."""

    @classmethod
    def of(cls, subscriptions: Iterable[ClientMetricsSubscription], client: Mapping[str, str]) -> InstanceSubscription:
        """Return the metrics of all subscriptions that match the client."""
        matching = [each for each in subscriptions if each.matches(client)]
        interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
        metrics = {prefix for each in matching for prefix in each.metrics}
        return cls(interval_ms, (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)))

    def subscription_id(self, instance_id: UUID) -> int:
        """Return the id, a signed number of 32 bits, which changes with the metrics or the interval."""
        checksum: int = crc32c(f"{list(self.metrics)}{self.interval_ms}".encode())
        halves = (instance_id.int >> 64) ^ (instance_id.int & (1 << 64) - 1)
        value = checksum ^ (halves >> 32) ^ (halves & 0xFFFFFFFF)
        return value - (1 << 32) if value >= 1 << 31 else value
