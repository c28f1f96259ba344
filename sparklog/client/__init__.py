"""Clients over gRPC: a producer, a consumer, an admin client, and one for jobs of upkeep.

    sparklog.client          Producer, Consumer, Admin, Maintenance: for plain code
    sparklog.client.aio      AsyncProducer, AsyncConsumer, AsyncAdmin, AsyncMaintenance: for code on an event loop; the
                             implementation of both

Keyword arguments are Kafka's configuration names with underscores (sparklog/client/config.py lists them); errors are
those of sparklog/base/errors.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.base.ids import TopicPartition
from sparklog.base.lazy import lazy

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
    "aio",
]

_MODULES = {
    "CONSUMED": "sparklog.client.consumed",
    "Admin": "sparklog.client.sync_admin",
    "Consumer": "sparklog.client.sync_consumer",
    "ConsumerInterceptor": "sparklog.client.interceptors",
    "ConsumerRecord": "sparklog.client.consumed",
    "Delivery": "sparklog.client.delivery",
    "Interceptor": "sparklog.client.interceptors",
    "Lease": "sparklog.client.maintenance",
    "ListedOffset": "sparklog.client.offsets",
    "Maintenance": "sparklog.client.sync_maintenance",
    "OffsetAndMetadata": "sparklog.client.commits",
    "OffsetRange": "sparklog.client.delivery",
    "Producer": "sparklog.client.sync_producer",
    "ProducerRecord": "sparklog.client.interceptors",
    "RebalanceListener": "sparklog.client.listeners",
    "RecordMetadata": "sparklog.client.delivery",
    "TableDelivery": "sparklog.client.delivery",
    "TableMetadata": "sparklog.client.delivery",
    "aio": "sparklog.client.aio",
}

if TYPE_CHECKING:
    from sparklog.client import aio
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
else:
    # An admin client needs neither Arrow nor the compiled kernels, which take longest to load.
    __getattr__, __dir__ = lazy(__name__, _MODULES, __all__)
