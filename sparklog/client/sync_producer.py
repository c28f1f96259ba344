"""The producer for code without an event loop. What happens for every record stays in the caller's thread."""

from __future__ import annotations

from typing import Any, Unpack

from sparklog.client.batches import Headers
from sparklog.client.delivery import Delivery, OnDelivery, TableDelivery
from sparklog.client.interceptors import ProducerRecord
from sparklog.client.loop_thread import Blocking
from sparklog.client.options import ProducerOptions
from sparklog.client.producer import AsyncProducer


class Producer(Blocking):
    """Writes records to topics.

        with Producer(bootstrap_servers="127.0.0.1:9094") as producer:
            delivery = producer.send("orders", b"3 apples", key=b"customer-7")
            metadata = delivery.result()

    Options are those of ProducerConfig. Raises ConfigError for any that is wrong. Records are written once, and in
    order within a partition: see AsyncProducer, whose methods these are. What has been neither flushed nor closed when
    the process ends is lost.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        self._core = AsyncProducer(**options)
        self.config = self._core.config
        super().__init__()
        self._run(self._core.start())
        self._try_send = self._core.try_send
        self._transforms = self._core.transforms

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """As AsyncProducer.send; `on_delivery` is called in the clients' thread and must not wait for this producer."""
        if self._transforms:
            record = ProducerRecord(topic, value, key, headers, timestamp_ms, partition)
            topic, value, key, headers, timestamp_ms, partition = self._core.transform(record)
            on_delivery = self._core.with_acknowledgement(on_delivery)
        taken = self._try_send(topic, value, key, headers, timestamp_ms, partition, on_delivery)
        if taken is None:
            return self._run(
                self._core.send_when_possible(topic, value, key, headers, timestamp_ms, partition, on_delivery)
            )
        return taken

    def send_table(self, topic: str, table: Any, *, partition: int | None = None) -> TableDelivery:
        """As AsyncProducer.send_table."""
        return self._run(self._core.send_table(topic, table, partition=partition))

    def flush(self, timeout_ms: int | None = None) -> None:
        """As AsyncProducer.flush."""
        self._run(self._core.flush(timeout_ms))

    def partitions_for(self, topic: str) -> list[int]:
        """As AsyncProducer.partitions_for."""
        return self._run(self._core.partitions_for(topic))

    def close(self, timeout_ms: int | None = None) -> None:
        """As AsyncProducer.close."""
        self._run(self._core.close(timeout_ms))
