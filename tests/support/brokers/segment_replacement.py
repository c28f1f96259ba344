"""What a job asks of a broker when it replaces segments, a topic to ask it for, and what else may happen to it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from crc32c import crc32c

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import delete_topics, describe_log, read_segment, replace_segments
from sparklog.broker.apis.replace_segments import BeginReplaceResponse
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.log import Log
from sparklog.records.batch import iterate_headers
from sparklog.records.records import read_records

NAME = TopicPartition("t", 0)
SEGMENTS = 5


class Upkeep:
    """A topic with one batch of one record in each segment, and what a job asks of its broker."""

    def __init__(self, world, batch) -> None:
        self.world = world
        self.batch = batch
        self.name = NAME

    async def create(self, topic: str = "t") -> LogDescription:
        self.name = TopicPartition(topic, 0)
        await self.world.create(topic, internal_segment_bytes="200", file_delete_delay_ms="0")
        for number in range(SEGMENTS):
            assert (await self.world.produce(topic, self.batch([b"%d" % number * 100]))).error is None
        return await self.describe()

    @property
    def log(self) -> Log:
        return self.world.broker.services.replicas.get(self.name).log

    async def describe(self) -> LogDescription:
        request = describe_log.DescribeLogRequest(partitions=[self.name])
        found = (await self.world.broker.serve(describe_log.API, request)).logs[self.name]
        if isinstance(found, KafkaError):
            raise found
        return found

    async def begin(
        self, log: LogDescription, count: int = 3, holder: str = "run", lease_ms: int = 60_000, **fields
    ) -> BeginReplaceResponse:
        asked = {"partition": log.partition, "leader_epoch": log.leader_epoch, "sources": log.segments[:count]} | fields
        request = replace_segments.BeginReplaceRequest(holder=holder, lease_ms=lease_ms, **asked)
        return await self.world.broker.serve(replace_segments.BEGIN_REPLACE, request)

    async def upload(self, lease: BeginReplaceResponse, *pieces: bytes) -> int:
        async def send() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        request = replace_segments.UploadSegmentRequest(lease_id=lease.lease_id, pieces=send())
        return (await self.world.broker.serve(replace_segments.UPLOAD_SEGMENT, request)).size_bytes

    async def commit(
        self, lease: BeginReplaceResponse, data: bytes, leader_epoch: int = 0, **fields
    ) -> SegmentDescription:
        asked = {"size_bytes": len(data), "crc32c": crc32c(data)} | fields
        request = replace_segments.CommitReplaceRequest(lease_id=lease.lease_id, leader_epoch=leader_epoch, **asked)
        return (await self.world.broker.serve(replace_segments.COMMIT_REPLACE, request)).segment

    async def abort(self, lease: BeginReplaceResponse) -> None:
        request = replace_segments.AbortReplaceRequest(lease_id=lease.lease_id)
        await self.world.broker.serve(replace_segments.ABORT_REPLACE, request)

    async def read(self, log: LogDescription, segment: SegmentDescription, **fields) -> AsyncIterator[bytes]:
        asked = {"base_offset": segment.base_offset, "identity": segment.identity} | fields
        request = read_segment.ReadSegmentRequest(partition=log.partition, **asked)
        return (await self.world.broker.serve(read_segment.API, request)).pieces

    async def values(self) -> dict[int, bytes]:
        """The first character of each record's value, by its offset."""
        found = {}
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            part = await self.world.fetch(self.name.topic, offset)
            data = part.slice.read()
            for position, _ in iterate_headers(data):
                found |= {record.offset: record.value[:1] for record in read_records(data, position)}
            offset = part.next_offset
        return found

    @property
    def staged(self) -> list[str]:
        """What somebody has left behind, anywhere."""
        return [name for _, _, names in os.walk(self.world.folder) for name in names if is_staged(name)]


def is_staged(name: str) -> bool:
    return name.endswith((".cleaned", ".swap"))


def without_the_second(log: LogDescription) -> bytes:
    """What may take the place of the first three segments: their batches but one."""
    return b"".join(bytes_of(log, segment) for segment in (log.segments[0], log.segments[2]))


def bytes_of(log: LogDescription, segment: SegmentDescription) -> bytes:
    return Path(log.folder, f"{segment.base_offset:020}.log").read_bytes()


def files_in(log: LogDescription) -> list[str]:
    return os.listdir(log.folder) if os.path.exists(log.folder) else []


def overwrite(log: LogDescription, segment: SegmentDescription) -> None:
    with open(f"{log.folder}/{segment.base_offset:020}.log", "r+b") as file:
        file.write(bytes(100))


def write_beside(lease: BeginReplaceResponse, data: bytes) -> None:
    with open(lease.path, "xb") as file:
        file.write(data)


async def replaced(upkeep: Upkeep, log: LogDescription) -> None:
    lease = await upkeep.begin(log, 1, holder="run")
    data = bytes_of(log, log.segments[0])
    await upkeep.upload(lease, data)
    await upkeep.commit(lease, data)


async def truncated(upkeep: Upkeep, log: LogDescription) -> None:
    await asyncio.to_thread(upkeep.log.truncate_to, 2)


async def truncated_and_written_again(upkeep: Upkeep, log: LogDescription) -> None:
    await truncated(upkeep, log)
    for number in range(2, SEGMENTS):
        await upkeep.world.produce(upkeep.name.topic, upkeep.batch([b"%d" % number * 100]))


async def removed_by_retention(upkeep: Upkeep, log: LogDescription) -> None:
    upkeep.log.advance_log_start(1)
    await asyncio.to_thread(upkeep.log.delete_old_segments, upkeep.world.clock.time_ms())


async def deleted(upkeep: Upkeep, log: LogDescription) -> None:
    request = delete_topics.DeleteTopicsRequest(topics=[delete_topics.TopicToDelete(name=log.partition.topic)])
    await upkeep.world.broker.serve(delete_topics.API, request)


async def made_again(upkeep: Upkeep, log: LogDescription) -> None:
    await deleted(upkeep, log)
    await upkeep.create(log.partition.topic)
