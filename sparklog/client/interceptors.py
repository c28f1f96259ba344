"""Code of the user's that sees every record on its way out, for tracing, counting or stamping.

An interceptor is any object with one or both of the methods of `Interceptor`. Interceptors are called in the order
in which they were given; each sees what the one before made of the record. What an interceptor raises is logged and
otherwise ignored: the record goes on as it was before that interceptor.
(org.apache.kafka.clients.producer.ProducerInterceptor)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from sparklog.base.errors import SparklogError
from sparklog.client.delivery import RecordMetadata

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
