"""A coordinator of one shard in a world that stands still: real shard, real host, simulated clock, log in memory.

Records go through their bytes on the way to the log and back, as with a real partition.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError, NotCoordinator
from sparklog.coordinator.runtime import CoordinatorRuntime
from sparklog.group.requests import OffsetFetch, OffsetFetchResponse
from sparklog.group.shard import GroupShard
from sparklog.offsets_topic.records import CoordinatorRecord, decode, encode
from sparklog.runtime.state_machine import ProducerIdAndEpoch
from sparklog.testing import SimClock

IDLE_TURNS = 10  # of the event loop, after which nothing moves any more without time passing


class SimTopic(NamedTuple):
    name: str
    partitions: Sequence[int]
    topic_id: UUID


class SimTopics(dict[str, SimTopic]):
    """A TopicsImage in which there is every topic that is looked for."""

    changes = 0

    @property
    def version(self) -> int:
        return len(self) + self.changes

    def __iter__(self) -> Iterator[SimTopic]:  # type: ignore[override]
        return iter(self.values())

    def put(self, name: str, partitions: int) -> None:
        """A topic is created, or grows."""
        known = self.get(name)
        self[name] = SimTopic(name, range(partitions), known.topic_id if known else UUID(int=len(self) + 1))
        self.changes += 1

    def make_again(self, name: str) -> None:
        """The topic is deleted, and another one of its name is made."""
        self.changes += 1
        self[name] = SimTopic(name, range(8), UUID(int=1_000 + self.changes))

    def find(self, name: str) -> SimTopic:
        return self.setdefault(name, SimTopic(name, range(8), UUID(int=len(self) + 1)))

    def get_by_id(self, topic_id: UUID) -> SimTopic:
        return next(topic for topic in self.values() if topic.topic_id == topic_id)


@dataclass
class MemoryLog:
    """A ShardLog whose writes can be made to fail, and whose commits can be held back."""

    written: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    refuse_with: KafkaError | None = None
    held_from: int | None = None
    """Nothing from this offset on is committed; None: all is."""
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        now_ms: int,
        producer: ProducerIdAndEpoch | None = None,
        verification: object = None,
    ) -> int:
        if self.refuse_with is not None:
            raise self.refuse_with
        self.written += [encode(record) for record in records]
        return len(self.written) - 1

    def is_committed(self, offset: int) -> bool:
        return self.held_from is None or offset < self.held_from

    async def wait_committed(self, offset: int, *, is_new: bool) -> None:
        await self.released.wait()

    def hold(self) -> None:
        self.held_from = len(self.written)
        self.released = asyncio.Event()

    def release(self) -> None:
        self.held_from = None
        self.released.set()


class _Timer:
    def __init__(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.run: Callable[[], object] | None = lambda: function(*arguments)

    def cancel(self) -> None:
        self.run = None


class GroupWorld:
    """Made on a running event loop."""

    def __init__(self, **config: Any) -> None:
        self.config = BrokerConfig(**config)
        self.clock = SimClock()
        self.log = MemoryLog()
        self.topics = SimTopics()
        self._ids = count(1)
        self._timers: list[tuple[int, int, _Timer]] = []
        self._timer_numbers = count()
        self.host = self._start(GroupShard(self.config, self.topics, self._new_id))

    def _new_id(self) -> UUID:
        return UUID(int=next(self._ids))

    def _start(self, shard: GroupShard) -> CoordinatorRuntime[GroupShard]:
        host = CoordinatorRuntime(shard, self.log, self.clock, self._call_later)
        host.decide(shard.loaded)
        host.decide(lambda _: shard.delete_of_others())
        return host

    def fetch_offsets(self, request: OffsetFetch) -> OffsetFetchResponse:
        """What a member is told, as the coordinator tells it."""
        self.host.settle()
        return self.host.shard.fetch_offsets(request)

    def load(self) -> GroupShard:
        """A shard as another coordinator finds it in the log."""
        shard = GroupShard(self.config, self.topics, self._new_id)
        for key, value in self.log.written:
            record = decode(key, value)
            assert record is not None
            shard.replay(record)
        return shard

    def move(self) -> None:
        """The coordinator is another broker from now on."""
        self.host.close(NotCoordinator("moved"))
        self.host = self._start(self.load())

    def _call_later(self, seconds: float, function: Callable[..., object], *arguments: Any) -> _Timer:
        timer = _Timer(function, arguments)
        due_ms = self.clock.monotonic_ms() + round(seconds * 1000)
        heapq.heappush(self._timers, (due_ms, next(self._timer_numbers), timer))
        return timer

    async def advance(self, milliseconds: int) -> None:
        """Let time pass, and everything happen that is due."""
        until_ms = self.clock.monotonic_ms() + milliseconds
        await self.settle()
        while self._timers and self._timers[0][0] <= until_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            if timer.run is not None:
                self.clock.advance(due_ms - self.clock.monotonic_ms())
                timer.run()
                await self.settle()
        self.clock.advance(until_ms - self.clock.monotonic_ms())

    async def settle(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(IDLE_TURNS):
            await asyncio.sleep(0)
