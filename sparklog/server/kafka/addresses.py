"""Where a broker is, as its clients are told."""

from __future__ import annotations

from typing import Any

from sparklog.cluster.model import BrokerInfo


def broker_address(broker: BrokerInfo, listener: str) -> dict[str, Any]:
    """`host` and `port` of a broker, for clients of a listener."""
    host, port = broker.listeners[listener]
    return {"host": host, "port": port}
