"""The fetchers that copy leaders' logs, as the replica manager sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from sparklog.base.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchState:
    """The leader that a partition is copied from."""

    leader: int
    leader_epoch: int
    topic_id: UUID


class Fetchers(Protocol):
    """Copies the logs of partitions that this broker follows. Used on the event loop."""

    def follow(self, states: Mapping[TopicPartition, FetchState]) -> None:
        """Copy these partitions from their log ends on; replaces their earlier states."""
        ...

    async def unfollow(self, names: Iterable[TopicPartition]) -> None:
        """Stop copying these partitions. On return, no task or thread works on their logs any more."""
        ...
