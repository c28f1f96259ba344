"""Rebalance listeners: user code for partitions that are assigned, revoked or lost.

A listener is any object with some of the methods of `RebalanceListener`. `poll`, `close` and `unsubscribe` call them,
in the caller's thread: with AsyncConsumer they may be asynchronous, with Consumer they must be plain functions. These
calls raise their exceptions. (org.apache.kafka.clients.consumer.ConsumerRebalanceListener)
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
        """Handle partitions that are added to the assignment; the method may `seek`.

        Called after every rebalance, with an empty sequence if none was added.
        """
        ...

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions that go to other members after this call, which may still `commit` their offsets."""
        ...

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions of a lost membership: their offsets can no longer be committed.

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
