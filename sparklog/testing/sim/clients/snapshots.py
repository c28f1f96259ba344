"""Snapshots of the offsets topic in a simulation, like those of the offsets replay job. Coordinators load them.

The real job reads and sends from outside of the broker. Here the leader's own process does both, as in merges.py.
Some time passes between the two, in which another broker may become leader, or the log may be compacted or grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api, Handlers
from sparklog.broker.apis import install_snapshot
from sparklog.broker.apis.install_snapshot import InstallSnapshotRequest
from sparklog.log.log import Log
from sparklog.records.records import Record, write_records
from sparklog.replica.manager import ReplicaManager
from sparklog.testing.sim.clients.client import SimClient
from sparklog.testing.sim.clients.workload import batches_of, bytes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSnapshot:
    """A request to the leader to take a snapshot. `takes_s` is the pause in seconds between reading and sending."""

    partition: TopicPartition
    takes_s: float


async def _take(request: TakeSnapshot, *, handlers: Handlers, replicas: ReplicaManager) -> None:
    replica = replicas.get_leader(request.partition)
    epoch, end_offset = replica.partition.leader_epoch, replica.partition.high_watermark
    data = await asyncio.to_thread(_newest, replica.log, end_offset)
    await asyncio.sleep(request.takes_s)

    async def pieces() -> AsyncIterator[bytes]:
        yield data

    await handlers[install_snapshot.API](
        InstallSnapshotRequest(partition=request.partition, leader_epoch=epoch, end_offset=end_offset, chunks=pieces()),
    )


TAKE_SNAPSHOT = Api(name=install_snapshot.API.name, handle=_take)


def _newest(log: Log, end_offset: int) -> bytes:
    """Return the newest record of each key below `end_offset`, without tombstones, as record batches."""
    newest: dict[bytes, Record] = {}
    for _, records in batches_of(bytes_of(log, log.log_start_offset, end_offset)):
        newest.update((record.key or b"", record) for record in records)
    rows = sorted((each for each in newest.values() if each.value is not None), key=lambda each: each.offset)
    return b"".join(bytes(write_records([row])) for row in rows)


class Snapshotter:
    """A client that has the leader of an offsets partition take a snapshot, about once a second."""

    def __init__(self, client: SimClient, partitions: Sequence[TopicPartition]) -> None:
        self._client = client
        self._partitions = list(partitions)

    async def run(self, is_over: asyncio.Event) -> None:
        chance = self._client.chance
        while not is_over.is_set():
            await asyncio.sleep(chance.expovariate(1))
            partition = chance.choice(self._partitions)
            request = TakeSnapshot(partition=partition, takes_s=chance.choice((0, 0.1, 0.5)))
            await self._client.ask_leader(partition, TAKE_SNAPSHOT, request)
