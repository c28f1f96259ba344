"""Clients over gRPC: a producer, a consumer, an admin client, and one for jobs of upkeep.

    sparklog.client          Producer, Consumer, Admin, Maintenance: for plain code
    sparklog.client.aio      AsyncProducer, AsyncConsumer, AsyncAdmin, AsyncMaintenance: for code on an event loop; the
                             implementation of both

Keyword arguments are Kafka's configuration names with underscores (sparklog/client/config.py lists them); errors are
those of sparklog/base/errors.py.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparklog.base.ids import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.commits import OffsetAndMetadata
    from sparklog.client.consumed import CONSUMED, ConsumerRecord
    from sparklog.client.delivery import Delivery, OffsetRange, RecordMetadata, TableDelivery, TableMetadata
    from sparklog.client.interceptors import ConsumerInterceptor, Interceptor, ProducerRecord
    from sparklog.client.listeners import RebalanceListener
    from sparklog.client.maintenance import Lease
    from sparklog.client.offsets import ListedOffset
    from sparklog.client.sync_admin import Admin
    from sparklog.client.sync_consumer import Consumer
    from sparklog.client.sync_maintenance import Maintenance
    from sparklog.client.sync_producer import Producer

__all__ = [
    "CONSUMED",
    "Admin",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "Delivery",
    "Interceptor",
    "Lease",
    "ListedOffset",
    "Maintenance",
    "OffsetAndMetadata",
    "OffsetRange",
    "Producer",
    "ProducerRecord",
    "RebalanceListener",
    "RecordMetadata",
    "TableDelivery",
    "TableMetadata",
    "TopicPartition",
]

# Found when first used: an admin client needs neither Arrow nor the compiled kernels, which take longest to load.
_MODULES = {
    "CONSUMED": "consumed",
    "Admin": "sync_admin",
    "Consumer": "sync_consumer",
    "ConsumerInterceptor": "interceptors",
    "ConsumerRecord": "consumed",
    "Delivery": "delivery",
    "Interceptor": "interceptors",
    "Lease": "maintenance",
    "ListedOffset": "offsets",
    "Maintenance": "sync_maintenance",
    "OffsetAndMetadata": "commits",
    "OffsetRange": "delivery",
    "Producer": "sync_producer",
    "ProducerRecord": "interceptors",
    "RebalanceListener": "listeners",
    "RecordMetadata": "delivery",
    "TableDelivery": "delivery",
    "TableMetadata": "delivery",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
