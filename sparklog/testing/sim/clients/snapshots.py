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
from sparklog.records.markers import read_marker
from sparklog.records.records import Record, write_records
from sparklog.replica.manager import ReplicaManager
from sparklog.testing.sim.clients.client import SimClient
from sparklog.testing.sim.clients.workload import batches_of, bytes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """A request to the leader to take a snapshot. `takes_s` is the pause in seconds between reading and sending."""

    partition: TopicPartition
    takes_s: float


async def _handle_snapshot(request: SnapshotRequest, *, handlers: Handlers, replicas: ReplicaManager) -> None:
    replica = replicas.get_leader(request.partition)
    epoch = replica.partition.leader_epoch
    end_offset, data = await asyncio.to_thread(_newest_records, replica.log, replica.last_stable_offset)
    await asyncio.sleep(request.takes_s)

    async def pieces() -> AsyncIterator[bytes]:
        yield data

    await handlers[install_snapshot.API](
        InstallSnapshotRequest(partition=request.partition, leader_epoch=epoch, end_offset=end_offset, chunks=pieces()),
    )


TAKE_SNAPSHOT = Api(name=install_snapshot.API.name, handle=_handle_snapshot, rights=())


def _newest_records(log: Log, end_offset: int) -> tuple[int, bytes]:
    """Return where the snapshot ends, and the newest committed record of each key, without tombstones, as batches.

    It ends at `end_offset`, or before the first transaction that is open there.
    """
    committed: list[Record] = []
    open_of: dict[int, list[Record]] = {}
    for header, records in batches_of(bytes_of(log, log.log_start_offset, end_offset)):
        if header.is_control:
            ended = open_of.pop(header.producer_id, [])
            marker = read_marker(records[0]) if records else None
            committed += ended if marker and marker.is_commit else ()
        elif header.is_transactional and records:
            open_of.setdefault(header.producer_id, []).extend(records)
        else:
            committed += records
    end = min((end_offset, *(records[0].offset for records in open_of.values())))
    by_offset = sorted(committed, key=lambda record: record.offset)
    newest = {record.key or b"": record for record in by_offset if record.offset < end}
    rows = sorted((each for each in newest.values() if each.value is not None), key=lambda each: each.offset)
    return end, b"".join(bytes(write_records([row])) for row in rows)


class Snapshotter:
    """Has the leader of an offsets partition take a snapshot, about once a second. Implements Worker."""

    def __init__(self, client: SimClient, partitions: Sequence[TopicPartition]) -> None:
        self._client = client
        self._partitions = list(partitions)

    async def run(self, is_over: asyncio.Event) -> None:
        chance = self._client.chance
        while not is_over.is_set():
            await asyncio.sleep(chance.expovariate(1))
            partition = chance.choice(self._partitions)
            request = SnapshotRequest(partition=partition, takes_s=chance.choice((0, 0.1, 0.5)))
            await self._client.ask_leader(partition, TAKE_SNAPSHOT, request)
