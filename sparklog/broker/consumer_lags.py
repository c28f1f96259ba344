"""The lag of the consumer groups that this broker coordinates, as of now.

    committed offsets    from the coordinator's memory
    high watermarks      of a partition that this broker leads or follows in sync: from its own log. A follower in sync
                         is one fetch behind at most. Other partitions: from their leaders (DescribePositions)

Leaders are asked on each scrape of the metrics: a periodic task would also run without readers, and its figures would
be older. If a leader does not answer within `LEADERS_TIMEOUT_MS`, the lag of its partitions is unknown.

Work on the event loop is cut into slices, and files are read in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from sparklog.base.clock import Clock
from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.base.schemas import ZERO_ID
from sparklog.broker.apis import describe_positions
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.peers import Peers
from sparklog.group.coordinator import GroupCoordinator, GroupProgress
from sparklog.offsets_topic.records import OffsetValue
from sparklog.replica.manager import ReplicaManager
from sparklog.replica.messages import DescribedPosition, DescribePositions, Position
from sparklog.runtime.slices import Slices, of_many

LEADERS_TIMEOUT_MS = 2_000
SLICE_SIZE = 1_000
"""Number of positions that are sorted together, or asked for in one request: a few milliseconds of work."""
logger = logging.getLogger(__name__)


class ConsumerLag(NamedTuple):
    """A group's committed offset in a partition, and the records that it has not consumed."""

    group_id: str
    name: TopicPartition
    offset: int
    lag: int | None
    """Number of committed records from the offset on; None: unknown, as the leader has not answered."""
    seconds: float | None
    """Age of the oldest of these records; 0 if there is none; None: unknown."""


class GroupFigures(Struct, frozen=True, kw_only=True):
    """The groups that this broker coordinates."""

    members: Sequence[tuple[str, int]]
    """The number of members by group id."""
    lags: Sequence[ConsumerLag]


NO_GROUPS = GroupFigures(members=(), lags=())


class _CommittedPosition(NamedTuple):
    group_id: str
    position: Position


class ConsumerLags:
    """Reads the lags. Used on one event loop."""

    def __init__(
        self,
        *,
        broker_id: int,
        clock: Clock,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        peers: Peers,
        slices: Slices,
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._metadata = metadata
        self._replicas = replicas
        self._groups = groups
        self._peers = peers
        self._slices = slices

    async def read(self) -> GroupFigures:
        """Return the figures of all groups whose partition of the offsets topic is led and loaded here."""
        groups = await self._groups.progress()
        by_leader = await self._by_leader(groups)
        found = await asyncio.gather(*(self._read(leader, asked) for leader, asked in by_leader.items()))
        return GroupFigures(
            members=[(group.group_id, group.members) for group in groups], lags=[lag for lags in found for lag in lags]
        )

    async def _by_leader(self, groups: Iterable[GroupProgress]) -> dict[int, list[_CommittedPosition]]:
        """Return the committed offsets by the broker to ask; offsets of deleted topics are left out."""
        found: defaultdict[int, list[_CommittedPosition]] = defaultdict(list)

        async def sort(part: Sequence[tuple[str, TopicPartition, OffsetValue]]) -> None:
            for group_id, name, value in part:
                if (broker_id := self._broker_to_ask(name, value)) is not None:
                    found[broker_id].append(_CommittedPosition(group_id, Position(name=name, offset=value.offset)))

        await self._slices.each(_parts(groups), sort)
        return found

    def _broker_to_ask(self, name: TopicPartition, value: OffsetValue) -> int | None:
        """Return this broker if it is in sync, else the leader; None if the topic was deleted, or created again."""
        topic, info = self._metadata.find(name.topic), self._metadata.find_partition(name)
        if topic is None or info is None or value.topic_id not in (ZERO_ID, topic.topic_id):
            return None
        return self._broker_id if self._broker_id in info.in_sync_replicas else info.leader

    async def _read(self, broker_id: int, committed: Sequence[_CommittedPosition]) -> list[ConsumerLag]:
        asked = [each.position for each in committed]
        if broker_id == self._broker_id:
            described = await describe_positions.describe(asked, self._replicas, self._slices, leads=False)
        else:
            described = await self._ask(self._metadata.brokers.get(broker_id), asked)
        return await asyncio.to_thread(_lags, committed, described, self._clock.time_ms())

    async def _ask(self, leader: BrokerInfo | None, asked: Sequence[Position]) -> list[DescribedPosition]:
        """Ask a leader; positions without an answer in time are unknown."""
        found: list[DescribedPosition] = []
        deadline_ms = self._clock.monotonic_ms() + LEADERS_TIMEOUT_MS
        if leader is None:
            return [describe_positions.UNKNOWN] * len(asked)
        for part in of_many(asked, SLICE_SIZE):
            left_ms = deadline_ms - self._clock.monotonic_ms()
            try:
                answer = await self._peers.call(leader, DescribePositions(positions=tuple(part)), timeout_ms=left_ms)
            except KafkaError as error:
                logger.info("the lag of consumers in %d partitions is not known: %s", len(asked) - len(found), error)
                break
            found += answer.positions
        return found + [describe_positions.UNKNOWN] * (len(asked) - len(found))


def _parts(groups: Iterable[GroupProgress]) -> Iterator[Sequence[tuple[str, TopicPartition, OffsetValue]]]:
    offsets = ((group.group_id, name, value) for group in groups for name, value in group.offsets.items())
    while part := tuple(islice(offsets, SLICE_SIZE)):
        yield part


def _lags(
    committed: Sequence[_CommittedPosition], described: Sequence[DescribedPosition], now_ms: int
) -> list[ConsumerLag]:
    return [_lag(each, found, now_ms) for each, found in zip(committed, described, strict=True)]


def _lag(committed: _CommittedPosition, found: DescribedPosition, now_ms: int) -> ConsumerLag:
    offset = committed.position.offset
    lag = None if found.high_watermark is None else max(0, found.high_watermark - offset)
    seconds = None if found.timestamp_ms is None else max(0, now_ms - found.timestamp_ms) / 1000
    return ConsumerLag(committed.group_id, committed.position.name, offset, lag, 0.0 if lag == 0 else seconds)
