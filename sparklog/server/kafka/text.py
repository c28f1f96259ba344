"""Error messages in responses."""

from __future__ import annotations

from sparklog.base.errors import KafkaError


def message_of(error: KafkaError | None) -> str | None:
    return None if error is None else str(error)
