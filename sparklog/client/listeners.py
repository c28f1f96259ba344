"""Code of the user's that is told which partitions come and go.

A listener is any object with some of the methods of `RebalanceListener`. They are called by `poll` (and `close` and
`unsubscribe`), where the user called it: with AsyncConsumer they may be asynchronous, with Consumer they are plain.
What they raise comes out of `poll`. (org.apache.kafka.clients.consumer.ConsumerRebalanceListener)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition


class RebalanceListener(Protocol):
    """What a listener may do; any method may be missing."""

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These are read from now on, in addition to others: the place to `seek`. Called after every rebalance, with
        no partitions where none came.
        """
        ...

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These go to others once this returns: the last chance to `commit` what was read of them."""
        ...

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These went without a chance to commit: the group has gone on without this member. Without this method
        on_revoked is called.
        """
        ...


def check_plain(listener: Any) -> None:
    """Raise ConfigError for a listener whose methods have to be awaited."""
    for name in ("on_assigned", "on_revoked", "on_lost"):
        if inspect.iscoroutinefunction(getattr(listener, name, None)):
            raise ConfigError(f"the listener's {name} is asynchronous: that is for AsyncConsumer")


def method(listener: Any, name: str) -> Callable[[Sequence[TopicPartition]], Any] | None:
    """The listener's method, if it has it."""
    found: Callable[[Sequence[TopicPartition]], Any] | None = getattr(listener, name, None)
    if found is None and name == "on_lost":
        return method(listener, "on_revoked")
    return found
