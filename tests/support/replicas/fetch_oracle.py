"""What a follower's fetch must say, found by looking at all partitions and comparing them with the last fetch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sparklog.base.ids import TopicPartition
from sparklog.replica.fetcher import LeaderFetcher
from sparklog.replica.messages import FetchPartition, ReplicaFetch

Changes = tuple[tuple[FetchPartition, ...], tuple[FetchPartition, ...]]
"""The changed and the forgotten partitions of a request."""


class FullComparison:
    """The requests of one session after another."""

    def __init__(self) -> None:
        self._before: dict[TopicPartition, FetchPartition] = {}

    def changes(self, wanted: Mapping[TopicPartition, FetchPartition], *, is_new: bool) -> Changes:
        before, self._before = self._before, dict(wanted)
        if is_new:
            return tuple(wanted.values()), ()
        changed = tuple(each for name, each in wanted.items() if before.get(name) != each)
        forgotten = tuple(
            each for name, each in before.items() if name not in wanted or wanted[name].topic_id != each.topic_id
        )
        return changed, forgotten


class FetchOracle:
    """Checks each request of one fetcher, at the moment when it is made."""

    def __init__(self) -> None:
        self._comparison = FullComparison()

    def check(self, fetcher: LeaderFetcher, request: ReplicaFetch) -> list[str]:
        """-> what is wrong with it. A fetcher would take an exception for one of the leader."""
        wanted = _fetchable(fetcher)
        expected = self._comparison.changes(wanted, is_new=request.session_epoch == 0)
        if wanted and (request.partitions, request.forgotten) == expected:
            return []
        return [f"asked for {request}, not for {expected}"]


def _fetchable(fetcher: LeaderFetcher) -> dict[TopicPartition, FetchPartition]:
    """All partitions that a fetcher can fetch now, in the order in which they were added."""
    now = asyncio.get_running_loop().time()
    wanted = {}
    for part in fetcher._parts.values():
        replica = fetcher._replicas.find(part.name)
        if replica and not part.is_busy and part.retry_at <= now and not fetcher._is_held_back(part, replica, now):
            wanted[part.name] = fetcher._partition_request(part, replica.log)
    return wanted
