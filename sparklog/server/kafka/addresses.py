"""Addresses of brokers for clients of a listener."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparklog.cluster.model import BrokerInfo


def with_listener(brokers: Iterable[BrokerInfo], listener: str) -> list[BrokerInfo]:
    """Return the brokers that have the listener, whose clients can reach only these."""
    return [broker for broker in brokers if listener in broker.listeners]


def broker_address(broker: BrokerInfo, listener: str) -> dict[str, Any]:
    """Return `host` and `port` of a broker for clients of the listener. The broker must have it."""
    host, port = broker.listeners[listener]
    return {"host": host, "port": port}
