"""Merges in a simulation: one new segment replaces several closed segments of a leader's log.

A merge uses the broker's leases and fencing, like a cleaner, but it removes no records. So the checks of the log hold
as if there were no merges. A real job runs outside of the broker and uploads the segment in pieces. Here only the
request crosses the network: the broker's own process builds the segment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.apis import replace_segments
from sparklog.broker.replacements import Replacements, StagedChecksum
from sparklog.log.files import LOG
from sparklog.log.log import Log
from sparklog.replica.manager import ReplicaManager
from sparklog.testing.sim.clients.client import SimClient

LEASE_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """A request to the leader to merge closed segments of a partition; `first` is the index of the first one."""

    partition: TopicPartition
    first: int
    count: int
    """The number of closed segments to merge, or fewer if the log has fewer."""


async def _handle_merge(request: MergeRequest, *, replacements: Replacements, replicas: ReplicaManager) -> None:
    replica = replicas.get_leader(request.partition)
    epoch, log = replica.partition.leader_epoch, replica.log
    sources = (await asyncio.to_thread(log.replacer.describe))[:-1][request.first :][: request.count]
    if not sources:
        return
    lease = await replacements.begin(request.partition, epoch, sources, holder="merger", lease_ms=LEASE_MS)
    data = b"".join([await asyncio.to_thread(_read_segment, log, each.base_offset, each.identity) for each in sources])

    async def pieces() -> AsyncIterator[bytes]:
        yield data

    size_bytes = await replacements.upload(lease.id, pieces())
    staged = StagedChecksum(size_bytes=size_bytes, crc32c=crc32c(data))
    new = await replacements.commit(lease.id, epoch, staged)
    await asyncio.to_thread(log.replacer.set_cleaned_offset, new.next_offset, [new])


def _read_segment(log: Log, base_offset: int, identity: str) -> bytes:
    return log.open_file(base_offset, LOG, identity).read()


MERGE = Api(name=replace_segments.COMMIT_REPLACE.name, handle=_handle_merge, rights=())


class Merger:
    """Has leaders merge segments of the checked partitions, several times a second. Implements Worker."""

    def __init__(self, client: SimClient, partitions: Sequence[TopicPartition]) -> None:
        self._client = client
        self._partitions = partitions

    async def run(self, is_over: asyncio.Event) -> None:
        chance = self._client.chance
        while not is_over.is_set():
            await asyncio.sleep(chance.expovariate(3))
            partition = chance.choice(self._partitions)
            request = MergeRequest(partition=partition, first=chance.choice((0, 0, 1, 2)), count=chance.randint(2, 4))
            await self._client.ask_leader(partition, MERGE, request)


def borders_of(log: Log, start: int) -> Iterator[tuple[int, int]]:
    """Return the base offset and the size in bytes of each closed segment that begins at `start` or later."""
    return ((each.base_offset, each.size_bytes) for each in log.segments[:-1] if each.base_offset >= start)
