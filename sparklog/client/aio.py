"""The clients for code on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.base.lazy import lazy

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncMaintenance", "AsyncProducer"]

_MODULES = {
    "AsyncAdmin": "sparklog.client.admin.admin",
    "AsyncConsumer": "sparklog.client.consumer.consumer",
    "AsyncMaintenance": "sparklog.client.maintenance.maintenance",
    "AsyncProducer": "sparklog.client.producer.producer",
}

if TYPE_CHECKING:
    from sparklog.client.admin.admin import AsyncAdmin
    from sparklog.client.consumer.consumer import AsyncConsumer
    from sparklog.client.maintenance.maintenance import AsyncMaintenance
    from sparklog.client.producer.producer import AsyncProducer
else:
    __getattr__, __dir__ = lazy(__name__, _MODULES, __all__)
