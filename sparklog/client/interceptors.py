"""Code of the user's that sees every record on its way out or in, for tracing, counting or stamping.

An interceptor is any object with some of the methods of `Interceptor` (a producer's) or `ConsumerInterceptor`.
Interceptors are called in the order in which they were given; each sees what the one before made of the records. What
an interceptor raises is logged and otherwise ignored: records go on as they were before that interceptor.
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
    """A record as it was given to `send`, before serializers and partitioner."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Interceptor(Protocol):
    """What an interceptor may do; either method may be missing."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send in place of `record`. Called by `send`, in its thread."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: SparklogError | None) -> None:
        """A record was acknowledged, or has failed. Called on the producer's event loop: it must not block."""
        ...


class Interceptors:
    """Some interceptors, called as one."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._on_send = [item.on_send for item in interceptors if hasattr(item, "on_send")]
        self._on_acknowledgement = [
            item.on_acknowledgement for item in interceptors if hasattr(item, "on_acknowledgement")
        ]

    @property
    def acknowledge(self) -> bool:
        """Whether anybody wants to see acknowledgements."""
        return bool(self._on_acknowledgement)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record as the interceptors leave it."""
        for call in self._on_send:
            try:
                changed = call(record)
            except Exception:
                logger.exception("an interceptor failed in on_send; the record goes on as it was")
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                logger.error("an interceptor's on_send returned %r, not a record; it goes on as it was", changed)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: SparklogError | None) -> None:
        """Tell the interceptors what became of a record."""
        for call in self._on_acknowledgement:
            try:
                call(metadata, error)
            except Exception:
                logger.exception("an interceptor failed in on_acknowledgement")


class ConsumerInterceptor(Protocol):
    """What a consumer's interceptor may do; either method may be missing."""

    def on_consume(self, records: list[Any]) -> list[Any]:
        """The records to return in place of those that `poll` is about to return. Called where `poll` was."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Offsets were committed. Called on the consumer's event loop: it must not block."""
        ...


class ConsumerInterceptors:
    """Some consumer's interceptors, called as one."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._on_consume = [item.on_consume for item in interceptors if hasattr(item, "on_consume")]
        self._on_commit = [item.on_commit for item in interceptors if hasattr(item, "on_commit")]

    def on_consume(self, records: list[Any]) -> list[Any]:
        """The records as the interceptors leave them."""
        for call in self._on_consume:
            try:
                changed = call(records)
            except Exception:
                logger.exception("an interceptor failed in on_consume; the records go on as they were")
                continue
            if isinstance(changed, list):
                records = changed
            else:
                logger.error("an interceptor's on_consume returned %r, not a list; records go on as they were", changed)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell the interceptors what was committed."""
        for call in self._on_commit:
            try:
                call(offsets)
            except Exception:
                logger.exception("an interceptor failed in on_commit")
