"""Rebalance listeners: user code that is called when partitions are assigned, revoked or lost.

A listener is any object with some of the methods of `RebalanceListener`. `poll`, `close` and `unsubscribe` call them,
in the caller's thread: with AsyncConsumer they may be asynchronous, with Consumer they must be plain functions. Their
exceptions come out of these calls. (org.apache.kafka.clients.consumer.ConsumerRebalanceListener)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition


class RebalanceListener(Protocol):
    """Listener of a subscription; any method may be missing."""

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle new partitions, read from now on in addition to those already assigned; this is the place to `seek`.

        Called after every rebalance, with no partitions if none was added.
        """
        ...

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions that go to other members once this returns: the last chance to `commit` their offsets."""
        ...

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions lost without a chance to commit: the group has continued without this member.

        If this method is missing, on_revoked is called.
        """
        ...


def check_plain(listener: Any) -> None:
    """Raise ConfigError for a listener with asynchronous methods."""
    for name in ("on_assigned", "on_revoked", "on_lost"):
        if inspect.iscoroutinefunction(getattr(listener, name, None)):
            raise ConfigError(f"the listener's {name} is asynchronous: that is for AsyncConsumer")


def method(listener: Any, name: str) -> Callable[[Sequence[TopicPartition]], Any] | None:
    """Return the listener's method, None if it has none; on_revoked replaces a missing on_lost."""
    found: Callable[[Sequence[TopicPartition]], Any] | None = getattr(listener, name, None)
    if found is None and name == "on_lost":
        return method(listener, "on_revoked")
    return found
