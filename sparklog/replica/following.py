"""Who copies the leaders' logs, as the replica manager sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from sparklog.base.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchState:
    """Whom a partition is copied from."""

    leader: int
    leader_epoch: int
    topic_id: UUID


class Fetchers(Protocol):
    """Copies the logs of partitions that this broker follows. Used on the event loop."""

    def follow(self, states: Mapping[TopicPartition, FetchState]) -> None:
        """Copy these from now on, from where their logs end; what was said of them before is over."""
        ...

    async def unfollow(self, names: Iterable[TopicPartition]) -> None:
        """Copy these no more. When it returns nothing is done to their logs any more, in no thread either."""
        ...
