"""All fetchers of a broker: up to num.replica.fetchers per leader, created and ended as needed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Mapping

from sparklog.base.ids import TopicPartition
from sparklog.replica.fetcher import FetcherContext, LeaderFetcher, PartitionFetchState
from sparklog.replica.segment_sync import SegmentSync
from sparklog.replica.state_changes import InitialFetchState

Key = tuple[int, int]
"""A leader's broker id, and the number of one of its fetchers."""


class ReplicaFetchers:
    """Implements `Fetchers`."""

    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self._fetchers: dict[Key, LeaderFetcher] = {}
        self._parts: dict[TopicPartition, PartitionFetchState] = {}
        self._syncing: dict[Key, asyncio.Semaphore] = {}
        self._is_stopped = False

    def __len__(self) -> int:
        """Number of partitions that are copied."""
        return len(self._parts)

    @property
    def max_lag(self) -> int:
        """Largest lag of any partition behind its leader's high watermark, in offsets."""
        return max((part.lag or 0 for part in self._parts.values()), default=0)

    def follow(self, states: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Copy these partitions; earlier copying of them must have ended (`unfollow`).

        Does nothing after `stop`: a request of the controller may finish only then.
        """
        if self._is_stopped:
            return
        for name, state in states.items():
            if before := self._remove(name):
                before.segment_sync.end()
            key = self._key(name, state)
            part = self._parts[name] = PartitionFetchState(name, state, self._segment_sync(name, state, key))
            fetcher = self._fetchers.get(key)
            if fetcher is None:
                fetcher = self._fetchers[key] = LeaderFetcher(state.leader, self._context)
                fetcher.start()
            fetcher.add(part)
        self._end_idle()

    async def unfollow(self, names: Iterable[TopicPartition]) -> None:
        """Stop copying these partitions. On return, no task or thread works on their logs any more."""
        parts = [part for name in names if (part := self._remove(name))]
        self._end_idle()
        working = [part.work for part in parts if part.work and part.is_busy]
        working += [task for part in parts if (task := part.segment_sync.end())]
        if working:
            await asyncio.wait(working)

    async def stop(self) -> None:
        """Stop all fetchers; return once none works on any log."""
        self._is_stopped = True
        tasks = [fetcher.stop() for fetcher in self._fetchers.values()]
        self._fetchers.clear()
        await self.unfollow(tuple(self._parts))
        await asyncio.gather(*tasks, return_exceptions=True)

    def _key(self, name: TopicPartition, state: InitialFetchState) -> Key:
        number = (zlib.crc32(name.topic.encode()) + name.partition) % self._context.config.num_replica_fetchers
        return state.leader, number

    def _remove(self, name: TopicPartition) -> PartitionFetchState | None:
        part = self._parts.pop(name, None)
        if part and (fetcher := self._fetchers.get(self._key(name, part.state))):
            fetcher.remove(name)
        return part

    def _segment_sync(self, name: TopicPartition, state: InitialFetchState, key: Key) -> SegmentSync:
        context = self._context
        return SegmentSync(
            name,
            state,
            ask=context.ask,
            config=context.config,
            throttle=context.throttle,
            semaphore=self._syncing.setdefault(key, asyncio.Semaphore(1)),
        )

    def _end_idle(self) -> None:
        for key, fetcher in tuple(self._fetchers.items()):
            if not len(fetcher):
                del self._fetchers[key]
                fetcher.stop()
