"""The clients for code on an event loop."""

from __future__ import annotations

from sparklog.client.admin import AsyncAdmin
from sparklog.client.consumer import AsyncConsumer
from sparklog.client.maintenance import AsyncMaintenance
from sparklog.client.producer import AsyncProducer

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncMaintenance", "AsyncProducer"]
