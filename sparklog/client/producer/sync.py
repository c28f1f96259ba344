"""The producer for code without an event loop. The caller's thread does the work of each record."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, Unpack
from weakref import WeakKeyDictionary

from sparklog.client.base import SyncClient, blocking, direct
from sparklog.client.interceptors import ProducerRecord
from sparklog.client.options import ProducerOptions
from sparklog.client.producer.batches import Headers
from sparklog.client.producer.delivery import Delivery, OnDelivery
from sparklog.client.producer.producer import AsyncProducer

logger = logging.getLogger(__name__)


class Producer(SyncClient[AsyncProducer]):
    """Producer that writes records to topics.

        with Producer(bootstrap_servers="127.0.0.1:9094") as producer:
            delivery = producer.send("orders", b"3 apples", key=b"customer-7")
            metadata = delivery.result()

    Options are those of ProducerConfig; raises ConfigError for an invalid one. The methods are those of AsyncProducer:
    records are written once, and in order within a partition. Call `flush` or `close` before the process ends:
    otherwise records still in the buffer are lost.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(AsyncProducer(**options))
        _started_in[self._core] = os.getpid()
        self.config = self._core.config
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

    send_table = blocking(AsyncProducer.send_table)
    flush = blocking(AsyncProducer.flush)
    unacknowledged = direct(AsyncProducer.unacknowledged)
    partitions_for = blocking(AsyncProducer.partitions_for)
    begin = blocking(AsyncProducer.begin)
    enlist = blocking(AsyncProducer.enlist)
    send_offsets = blocking(AsyncProducer.send_offsets)
    commit = blocking(AsyncProducer.commit)
    abort = blocking(AsyncProducer.abort)
    close = blocking(AsyncProducer.close)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction for a ``with`` block, and commit it at its end, or abort it after an exception.

        If it cannot be committed it is aborted, and the error of `commit` is raised. The block may end the transaction
        itself.
        """
        self.begin()
        try:
            yield self
        except BaseException:
            self._run(self._core.end_block(is_commit=False))
            raise
        self._run(self._core.end_block(is_commit=True))


_started_in: WeakKeyDictionary[AsyncProducer, int] = WeakKeyDictionary()
"""The process of each producer. The task of a started one keeps it alive without its Producer."""


@atexit.register
def _log_lost_records() -> None:
    """Log the records that this process loses at its end, because producers were not closed."""
    process = os.getpid()
    if lost := sum(
        each.unacknowledged().records for each, started_in in list(_started_in.items()) if started_in == process
    ):
        logger.warning(
            "Producer not closed: %d records were not sent; call close() or use it in a with statement", lost
        )
