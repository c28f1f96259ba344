"""Clients over gRPC: a producer, a consumer, an admin client, and a maintenance client for jobs.

    sparklog.client          Producer, Consumer, Admin, Maintenance: for code without an event loop
    sparklog.client.aio      AsyncProducer, AsyncConsumer, AsyncAdmin, AsyncMaintenance: for code on an event loop; the
                             implementation of both

    producer/ consumer/ admin/ maintenance/  one package per client; its sync.py has the synchronous class
    other modules                            shared by the clients: brokers, leaders, retries, options, offsets

Keyword arguments are Kafka's configuration names with underscores. sparklog/client/config.py documents them;
ProducerOptions, ConsumerOptions and AdminOptions are their types. Errors are those of sparklog/base/errors.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.base.ids import TopicPartition
from sparklog.base.lazy import lazy

__all__ = [
    "CONSUMED",
    "Admin",
    "AdminOptions",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerOptions",
    "ConsumerRecord",
    "Delivery",
    "GroupMetadata",
    "Interceptor",
    "Lease",
    "ListedOffset",
    "Maintenance",
    "OffsetAndMetadata",
    "OffsetRange",
    "Producer",
    "ProducerOptions",
    "ProducerRecord",
    "RebalanceListener",
    "RecordMetadata",
    "TableDelivery",
    "TableMetadata",
    "TopicPartition",
    "Unacknowledged",
    "aio",
]

_MODULES = {
    "CONSUMED": "sparklog.client.consumer.consumed",
    "Admin": "sparklog.client.admin.sync",
    "AdminOptions": "sparklog.client.options",
    "Consumer": "sparklog.client.consumer.sync",
    "ConsumerInterceptor": "sparklog.client.interceptors",
    "ConsumerOptions": "sparklog.client.options",
    "ConsumerRecord": "sparklog.client.consumer.consumed",
    "Delivery": "sparklog.client.producer.delivery",
    "GroupMetadata": "sparklog.client.commits",
    "Interceptor": "sparklog.client.interceptors",
    "Lease": "sparklog.client.maintenance.maintenance",
    "ListedOffset": "sparklog.client.offsets",
    "Maintenance": "sparklog.client.maintenance.sync",
    "OffsetAndMetadata": "sparklog.client.commits",
    "OffsetRange": "sparklog.client.producer.delivery",
    "Producer": "sparklog.client.producer.sync",
    "ProducerOptions": "sparklog.client.options",
    "ProducerRecord": "sparklog.client.interceptors",
    "RebalanceListener": "sparklog.client.listeners",
    "RecordMetadata": "sparklog.client.producer.delivery",
    "TableDelivery": "sparklog.client.producer.delivery",
    "TableMetadata": "sparklog.client.producer.delivery",
    "Unacknowledged": "sparklog.client.producer.delivery",
    "aio": "sparklog.client.aio",
}

if TYPE_CHECKING:
    from sparklog.client import aio
    from sparklog.client.admin.sync import Admin
    from sparklog.client.commits import GroupMetadata, OffsetAndMetadata
    from sparklog.client.consumer.consumed import CONSUMED, ConsumerRecord
    from sparklog.client.consumer.sync import Consumer
    from sparklog.client.interceptors import ConsumerInterceptor, Interceptor, ProducerRecord
    from sparklog.client.listeners import RebalanceListener
    from sparklog.client.maintenance.maintenance import Lease
    from sparklog.client.maintenance.sync import Maintenance
    from sparklog.client.offsets import ListedOffset
    from sparklog.client.options import AdminOptions, ConsumerOptions, ProducerOptions
    from sparklog.client.producer.delivery import (
        Delivery,
        OffsetRange,
        RecordMetadata,
        TableDelivery,
        TableMetadata,
        Unacknowledged,
    )
    from sparklog.client.producer.sync import Producer
else:
    # An admin client needs neither Arrow nor the compiled kernels, which take longest to load.
    __getattr__, __dir__ = lazy(__name__, _MODULES, __all__)
