"""Interceptors: user code that sees every record sent or returned, for tracing, counting or stamping.

An interceptor is any object with some of the methods of `Interceptor` (for producers) or `ConsumerInterceptor`.
Interceptors are called in order; each gets the result of the one before. An exception of an interceptor is logged, and
its result is the records that it got.
(org.apache.kafka.clients.producer.ProducerInterceptor, org.apache.kafka.clients.consumer.ConsumerInterceptor)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client.producer.delivery import RecordMetadata

if TYPE_CHECKING:
    from sparklog.client.commits import OffsetAndMetadata

logger = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """The arguments of `send`, before serializers and partitioner."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Interceptor(Protocol):
    """Interceptor of a producer; either method may be missing."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send in place of `record`. Called by `send`, in its thread."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: SparklogError | None) -> None:
        """Handle a record's acknowledgement (`metadata`) or failure (`error`); the other argument is None.

        Called on the producer's event loop: it must not block.
        """
        ...


class ProducerInterceptors:
    """A producer's interceptors, called as one."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._on_send = [item.on_send for item in interceptors if hasattr(item, "on_send")]
        self._on_acknowledgement = [
            item.on_acknowledgement for item in interceptors if hasattr(item, "on_acknowledgement")
        ]

    @property
    def acknowledge(self) -> bool:
        """Whether any interceptor has on_acknowledgement."""
        return bool(self._on_acknowledgement)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record after all interceptors."""
        for call in self._on_send:
            try:
                changed = call(record)
            except Exception:
                logger.exception("an interceptor failed in on_send; the record stays unchanged")
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                logger.error("an interceptor's on_send returned %r, not a record; the record stays unchanged", changed)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: SparklogError | None) -> None:
        """Call the interceptors after a record's acknowledgement or failure."""
        for call in self._on_acknowledgement:
            try:
                call(metadata, error)
            except Exception:
                logger.exception("an interceptor failed in on_acknowledgement")


class ConsumerInterceptor(Protocol):
    """Interceptor of a consumer; either method may be missing."""

    def on_consume(self, records: list[Any]) -> list[Any]:
        """Return the records that `poll` returns in place of `records`. Called by `poll`, in its thread."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Handle a successful commit of `offsets`. Called on the consumer's event loop: it must not block."""
        ...


class ConsumerInterceptors:
    """A consumer's interceptors, called as one."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._on_consume = [item.on_consume for item in interceptors if hasattr(item, "on_consume")]
        self._on_commit = [item.on_commit for item in interceptors if hasattr(item, "on_commit")]

    def on_consume(self, records: list[Any]) -> list[Any]:
        """Return the records after all interceptors."""
        for call in self._on_consume:
            try:
                changed = call(records)
            except Exception:
                logger.exception("an interceptor failed in on_consume; the records stay unchanged")
                continue
            if isinstance(changed, list):
                records = changed
            else:
                logger.error("an interceptor's on_consume returned %r, not a list; the records stay unchanged", changed)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Call the interceptors after a commit."""
        for call in self._on_commit:
            try:
                call(offsets)
            except Exception:
                logger.exception("an interceptor failed in on_commit")
