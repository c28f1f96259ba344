"""Where a broker is, as its clients are told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparklog.cluster.model import BrokerInfo


def with_listener(brokers: Iterable[BrokerInfo], listener: str) -> list[BrokerInfo]:
    """Those that clients of a listener can be told about."""
    return [broker for broker in brokers if listener in broker.listeners]


def broker_address(broker: BrokerInfo, listener: str) -> dict[str, Any]:
    """`host` and `port` of a broker, for clients of a listener that it has."""
    host, port = broker.listeners[listener]
    return {"host": host, "port": port}
