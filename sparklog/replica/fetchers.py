"""All fetchers of a broker: num.replica.fetchers for each leader that it follows, made and ended as they are needed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Mapping

from sparklog.base.ids import TopicPartition
from sparklog.replica.fetcher import FetcherContext, Followed, LeaderFetcher
from sparklog.replica.following import FetchState

Key = tuple[int, int]
"""A leader, and the number of one of its fetchers."""


class ReplicaFetchers:
    """Implements `Fetchers`."""

    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self._fetchers: dict[Key, LeaderFetcher] = {}
        self._parts: dict[TopicPartition, Followed] = {}

    def __len__(self) -> int:
        """How many partitions are copied."""
        return len(self._parts)

    @property
    def max_lag(self) -> int:
        """Of all partitions, how far one is behind its leader's high watermark at most."""
        return max((part.lag or 0 for part in self._parts.values()), default=0)

    def follow(self, states: Mapping[TopicPartition, FetchState]) -> None:
        """Copy these from now on; nothing that was begun before must still be under way (`unfollow`)."""
        for name, state in states.items():
            self._remove(name)
            part = self._parts[name] = Followed(name, state)
            key = self._key(name, state)
            if key not in self._fetchers:
                self._fetchers[key] = LeaderFetcher(state.leader, self._context)
            self._fetchers[key].add(part)
        self._end_idle()

    async def unfollow(self, names: Iterable[TopicPartition]) -> None:
        """Copy these no more. When it returns nothing is done to their logs any more, in no thread either."""
        working = [part.work for name in names if (part := self._remove(name)) and part.work and part.is_busy]
        self._end_idle()
        if working:
            await asyncio.wait(working)

    async def stop(self) -> None:
        """End all, once nothing is done to any log any more."""
        tasks = [fetcher.stop() for fetcher in self._fetchers.values()]
        self._fetchers.clear()
        await self.unfollow(tuple(self._parts))
        await asyncio.gather(*tasks, return_exceptions=True)

    def _key(self, name: TopicPartition, state: FetchState) -> Key:
        number = (zlib.crc32(name.topic.encode()) + name.partition) % self._context.config.num_replica_fetchers
        return state.leader, number

    def _remove(self, name: TopicPartition) -> Followed | None:
        part = self._parts.pop(name, None)
        if part and (fetcher := self._fetchers.get(self._key(name, part.state))):
            fetcher.remove(name)
        return part

    def _end_idle(self) -> None:
        for key, fetcher in tuple(self._fetchers.items()):
            if not len(fetcher):
                del self._fetchers[key]
                fetcher.stop()
