"""Segments replaced through a broker's APIs: leases, plans that are out of date, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from sparklog.base.errors import (
    CorruptRecord,
    DuplicateResource,
    FencedLeaderEpoch,
    InvalidRecord,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
    RequestTimedOut,
    ResourceNotFound,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.broker import node
from sparklog.broker.apis import (
    abort_replace,
    begin_replace,
    commit_replace,
    delete_topics,
    describe_log,
    install_snapshot,
    list_topics,
    read_segment,
    set_cleaned_offset,
    upload_segment,
)
from sparklog.broker.apis.begin_replace import BeginReplaceResponse
from sparklog.broker.replacements import COMMITS_AT_ONCE
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.log import Log
from sparklog.log.staged import StagedFile
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
        request = begin_replace.BeginReplaceRequest(holder=holder, lease_ms=lease_ms, **asked)
        return await self.world.broker.serve(begin_replace.API, request)

    async def upload(self, lease: BeginReplaceResponse, *pieces: bytes) -> int:
        async def send() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        request = upload_segment.UploadSegmentRequest(lease_id=lease.lease_id, pieces=send())
        return (await self.world.broker.serve(upload_segment.API, request)).size_bytes

    async def commit(
        self, lease: BeginReplaceResponse, data: bytes, leader_epoch: int = 0, **fields
    ) -> SegmentDescription:
        asked = {"size_bytes": len(data), "crc32c": crc32c(data)} | fields
        request = commit_replace.CommitReplaceRequest(lease_id=lease.lease_id, leader_epoch=leader_epoch, **asked)
        return (await self.world.broker.serve(commit_replace.API, request)).segment

    async def abort(self, lease: BeginReplaceResponse) -> None:
        request = abort_replace.AbortReplaceRequest(lease_id=lease.lease_id)
        await self.world.broker.serve(abort_replace.API, request)

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


@pytest.fixture
async def upkeep(world, batch) -> Upkeep:
    await world.start(auto_create_topics_enable="false")
    return Upkeep(world, batch)


async def test_one_segment_takes_the_place_of_three(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    data = without_the_second(log)
    lease = await upkeep.begin(log)
    assert await upkeep.upload(lease, data[:100], b"", data[100:]) == len(data)
    new = await upkeep.commit(lease, data)
    assert (new.base_offset, new.next_offset, new.size_bytes) == (0, 3, len(data))
    after = await upkeep.describe()
    assert after.segments == (new, *log.segments[3:])
    assert bytes_of(after, new) == data
    assert await upkeep.values() == {0: b"0", 2: b"2", 3: b"3", 4: b"4"}
    figures = upkeep.world.broker.metrics.topics["t"]
    assert (figures.replaced_segments, figures.replaced_bytes_before, figures.replaced_bytes_after) == (
        3, sum(segment.size_bytes for segment in log.segments[:3]), len(data),
    )  # fmt: skip
    assert not upkeep.staged


async def test_what_is_done_stays_done_however_often_it_is_asked_for(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    data = without_the_second(log)
    lease = await upkeep.begin(log)
    await upkeep.upload(lease, data)
    first, second = await asyncio.gather(upkeep.commit(lease, data), upkeep.commit(lease, data))
    assert first == second == await upkeep.commit(lease, data)
    await upkeep.abort(lease)
    assert (await upkeep.describe()).segments[0] == first


async def test_a_file_written_beside_the_log_needs_no_upload(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    data = without_the_second(log)
    lease = await upkeep.begin(log)
    write_beside(lease, data)
    await upkeep.commit(lease, data)
    assert list(await upkeep.values()) == [0, 2, 3, 4]


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


CHANGES = (replaced, truncated, truncated_and_written_again, removed_by_retention, deleted, made_again)
STALE = (InvalidUpdateVersion, UnknownTopicOrPartition, ResourceNotFound)


async def test_a_plan_that_is_out_of_date_is_refused_when_it_begins(upkeep: Upkeep) -> None:
    for change in CHANGES:
        log = await upkeep.create(change.__name__)
        await change(upkeep, log)
        with pytest.raises(STALE):
            await upkeep.begin(log)
        assert not upkeep.staged
        assert not len(upkeep.world.broker.services.replacements)


async def test_a_plan_that_is_out_of_date_by_its_end_is_refused_and_leaves_nothing(upkeep: Upkeep) -> None:
    for change in CHANGES:
        log = await upkeep.create(change.__name__)
        data = without_the_second(log)
        lease = await upkeep.begin(log)
        await upkeep.upload(lease, data)
        await change(upkeep, log)
        left = None if change is deleted else (await upkeep.describe()).segments
        with pytest.raises(STALE):
            await upkeep.commit(lease, data)
        assert not any(is_staged(name) for name in files_in(log)), change
        assert left is None or (await upkeep.describe()).segments == left
    assert not len(upkeep.world.broker.services.replacements)


async def test_another_leader_epoch_is_refused_at_both_ends(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    upkeep.world.broker.services.replicas.get(NAME).partition.leader_epoch = 4
    with pytest.raises(FencedLeaderEpoch):
        await upkeep.begin(log, leader_epoch=3)
    with pytest.raises(UnknownLeaderEpoch):
        await upkeep.begin(log, leader_epoch=5)
    data = without_the_second(log)
    lease = await upkeep.begin(log, leader_epoch=4)
    await upkeep.upload(lease, data)
    with pytest.raises(FencedLeaderEpoch):
        await upkeep.commit(lease, data, leader_epoch=3)
    assert not upkeep.staged
    request = set_cleaned_offset.SetCleanedOffsetRequest(partition=NAME, leader_epoch=3, offset=1, segments=())
    with pytest.raises(FencedLeaderEpoch):
        await upkeep.world.broker.serve(set_cleaned_offset.API, request)


async def test_a_lease_without_a_sign_of_life_ends_with_what_was_staged(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    data = without_the_second(log)
    lease = await upkeep.begin(log, lease_ms=1000)
    upkeep.world.clock.advance(999)
    await upkeep.upload(lease, data)  # a sign of life
    upkeep.world.clock.advance(999)
    await upkeep.world.broker.services.replacements.expire()
    assert upkeep.staged
    upkeep.world.clock.advance(1)
    await upkeep.world.broker.services.replacements.expire()
    assert not upkeep.staged
    with pytest.raises(ResourceNotFound):
        await upkeep.commit(lease, data)
    with pytest.raises(ResourceNotFound):
        await upkeep.upload(lease, data)
    await upkeep.begin(log, holder="another")


async def test_leases_are_swept_without_anybody_asking(world, batch, monkeypatch) -> None:
    monkeypatch.setattr(node, "LEASE_INTERVAL_MS", 1)
    await world.start()
    upkeep = Upkeep(world, batch)
    await upkeep.upload(await upkeep.begin(await upkeep.create(), lease_ms=1000), b"half of it")
    world.clock.advance(1000)
    async with asyncio.timeout(10):
        while upkeep.staged:  # noqa: ASYNC110 - nothing tells when a file is gone
            await asyncio.sleep(0.002)
    assert not len(world.broker.services.replacements)


async def test_an_expired_lease_is_nobodys_even_before_it_is_swept(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    await upkeep.upload(await upkeep.begin(log, lease_ms=1000), b"old")
    upkeep.world.clock.advance(1000)
    lease = await upkeep.begin(log, holder="another")
    assert not upkeep.staged
    data = without_the_second(log)
    await upkeep.upload(lease, data)
    await upkeep.world.broker.services.replacements.expire()
    await upkeep.commit(lease, data)


async def test_only_its_holder_takes_a_lease_over_and_begins_from_nothing(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    before = await upkeep.begin(log)
    await upkeep.upload(before, b"half of it")
    with pytest.raises(DuplicateResource):
        await upkeep.begin(log, holder="another")
    after = await upkeep.begin(log)
    assert not upkeep.staged
    data = without_the_second(log)
    with pytest.raises(ResourceNotFound):
        await upkeep.upload(before, data)
    await upkeep.upload(after, data)
    await upkeep.commit(after, data)


async def test_an_upload_that_began_again_counts_alone(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    data = without_the_second(log)
    lease = await upkeep.begin(log)
    go_on = asyncio.Event()
    has_begun = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"what came before"
        has_begun.set()
        await go_on.wait()
        yield b"and after"

    request = upload_segment.UploadSegmentRequest(lease_id=lease.lease_id, pieces=slow())
    first = asyncio.create_task(upkeep.world.broker.serve(upload_segment.API, request))
    await has_begun.wait()
    assert await upkeep.upload(lease, data) == len(data)
    go_on.set()
    with pytest.raises(ResourceNotFound):
        await first
    await upkeep.commit(lease, data)


async def test_a_client_that_stalls_loses_its_lease(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    lease = await upkeep.begin(log, lease_ms=20)

    async def stalling() -> AsyncIterator[bytes]:
        yield b"a little"
        await asyncio.Event().wait()

    request = upload_segment.UploadSegmentRequest(lease_id=lease.lease_id, pieces=stalling())
    with pytest.raises(ResourceNotFound):
        await upkeep.world.broker.serve(upload_segment.API, request)
    assert not upkeep.staged
    await upkeep.begin(log, holder="another")


async def test_an_upload_that_stalls_does_not_end_the_lease_of_one_that_began_later(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    data = without_the_second(log)
    lease = await upkeep.begin(log, lease_ms=50)
    has_begun = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield b"a little"
        has_begun.set()
        await asyncio.Event().wait()

    request = upload_segment.UploadSegmentRequest(lease_id=lease.lease_id, pieces=stalling())
    first = asyncio.create_task(upkeep.world.broker.serve(upload_segment.API, request))
    await has_begun.wait()
    await upkeep.upload(lease, data)
    with pytest.raises(ResourceNotFound):
        await first
    await upkeep.commit(lease, data)


async def test_no_more_is_taken_than_could_be_of_use(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    lease = await upkeep.begin(log)
    with pytest.raises(RecordListTooLarge):
        await upkeep.upload(lease, *[bytes(1 << 19)] * 100)
    assert not upkeep.staged
    with pytest.raises(ResourceNotFound):
        await upkeep.upload(lease, b"more")


UNFIT: tuple[tuple[Callable[[bytes], bytes], dict[str, int], type[KafkaError]], ...] = (
    (lambda data: data, {"crc32c": 1}, CorruptRecord),
    (lambda data: data, {"crc32c": -1}, CorruptRecord),
    (lambda data: data, {"size_bytes": -1}, CorruptRecord),
    (lambda data: data, {"size_bytes": 1 << 62}, CorruptRecord),
    (lambda data: data[:-1], {}, CorruptRecord),
    (lambda data: data[:-1] + b"?", {}, CorruptRecord),
    (lambda data: b"", {}, InvalidRecord),
    (lambda data: data[len(data) // 2 :] + data[: len(data) // 2], {}, CorruptRecord),
    (lambda data: data[: len(data) // 2], {}, InvalidRecord),
)


async def test_what_may_not_take_their_place_is_refused(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    for make, fields, error in UNFIT:
        lease = await upkeep.begin(log)
        data = make(without_the_second(log))
        await upkeep.upload(lease, data)
        with pytest.raises(error):
            await upkeep.commit(lease, data, **fields)
        assert not upkeep.staged
        assert await upkeep.describe() == log
        with pytest.raises(ResourceNotFound):
            await upkeep.commit(lease, data, **fields)


async def test_requests_that_make_no_sense(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    for fields in (
        {"lease_ms": 0},
        {"lease_ms": -1},
        {"lease_ms": 1 << 62},
        {"sources": ()},
        {"holder": "x" * 1001},
        {"holder": ""},
    ):
        with pytest.raises(InvalidRequest):
            await upkeep.begin(log, **fields)
    one, two, three, *_ = log.segments
    for sources in (
        (one, three),
        (two, one),
        (one, one),
        log.segments,
        log.segments[-1:],
        (replace(one, identity=""),),
        (replace(one, size_bytes=-1),),
        (replace(one, base_offset=-1),),
        (replace(one, next_offset=1 << 62),),
    ):
        with pytest.raises(InvalidUpdateVersion):
            await upkeep.begin(log, sources=sources)
    with pytest.raises(UnknownTopicOrPartition):
        await upkeep.begin(log, partition=TopicPartition("t", -1))
    nobody = BeginReplaceResponse(lease_id="?", path="")
    await upkeep.abort(nobody)
    for asked in (upkeep.commit(nobody, b""), upkeep.upload(nobody, b"x")):
        with pytest.raises(ResourceNotFound):
            await asked
    with pytest.raises(ResourceNotFound):
        await upkeep.commit(await upkeep.begin(log), b"")  # nothing was staged
    assert await upkeep.describe() == log


async def test_nothing_above_the_high_watermark_is_replaced(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    upkeep.world.broker.services.replicas.get(NAME).partition.high_watermark = 2
    with pytest.raises(InvalidUpdateVersion):
        await upkeep.begin(log)
    await upkeep.begin(log, 2)


async def test_a_commit_goes_on_when_whoever_asked_has_gone(upkeep: Upkeep, monkeypatch) -> None:
    log = await upkeep.create()
    data = without_the_second(log)
    lease = await upkeep.begin(log)
    await upkeep.upload(lease, data)
    loop, has_begun, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    put_in_place = Log.replace

    def slow(log: Log, *args, **fields) -> SegmentDescription:
        loop.call_soon_threadsafe(has_begun.set)
        assert may_end.wait(10)
        return put_in_place(log, *args, **fields)

    monkeypatch.setattr(Log, "replace", slow)
    asked = asyncio.create_task(upkeep.commit(lease, data))
    await has_begun.wait()
    asked.cancel()
    with pytest.raises(DuplicateResource):
        await upkeep.begin(log, holder="another")
    upkeep.world.clock.advance(100_000)  # a lease that is committing does not expire
    await upkeep.world.broker.services.replacements.expire()
    may_end.set()
    new = await upkeep.commit(lease, data)
    assert (await upkeep.describe()).segments[0] == new


async def test_commits_leave_threads_for_others(upkeep: Upkeep, monkeypatch) -> None:
    leases = []
    for number in range(COMMITS_AT_ONCE + 1):
        log = await upkeep.create(f"t{number}")
        lease = await upkeep.begin(log)
        write_beside(lease, without_the_second(log))
        leases.append((lease, without_the_second(log)))
    begun, may_end = [], threading.Event()
    put_in_place = Log.replace

    def slow(log: Log, *args, **fields) -> SegmentDescription:
        begun.append(log)
        assert may_end.wait(10)
        return put_in_place(log, *args, **fields)

    monkeypatch.setattr(Log, "replace", slow)
    commits = [asyncio.create_task(upkeep.commit(lease, data)) for lease, data in leases]
    for _ in range(100):
        await asyncio.to_thread(lambda: None)  # whatever was given to a thread before has begun
    assert len(begun) == COMMITS_AT_ONCE
    may_end.set()
    assert [new.base_offset for new in await asyncio.gather(*commits)] == [0] * len(leases)


async def test_a_full_disk_refuses_the_upload_and_harms_nothing_else(upkeep: Upkeep, monkeypatch) -> None:
    log = await upkeep.create()
    lease = await upkeep.begin(log)
    monkeypatch.setattr(StagedFile, "append", no_room(StagedFile.append))
    with pytest.raises(KafkaStorageError):
        await upkeep.upload(lease, without_the_second(log))
    monkeypatch.undo()
    assert (await upkeep.world.produce("t", upkeep.batch([b"x"]))).error is None
    await upkeep.abort(lease)
    assert not upkeep.staged


def no_room(append: Callable) -> Callable:
    def refuse(file: StagedFile, data: bytes) -> None:
        class Full:
            def append(self, data: bytes) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

        real, file._file = file._file, Full()
        try:
            append(file, data)
        finally:
            file._file = real

    return refuse


async def test_a_disk_that_fails_takes_its_directory_offline(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    lease = await upkeep.begin(log)
    upkeep.world.fs.broken = log.folder
    with pytest.raises(KafkaStorageError):
        await upkeep.upload(lease, without_the_second(log))
    with pytest.raises(KafkaStorageError):
        await upkeep.describe()


async def test_a_stopping_broker_leaves_nothing_staged(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    data = without_the_second(log)
    await upkeep.upload(await upkeep.begin(log), data)
    assert upkeep.staged
    await upkeep.world.broker.stop()
    assert not upkeep.staged


async def test_a_broker_that_starts_knows_no_lease_and_clears_what_is_staged(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    lease = await upkeep.begin(log)
    await upkeep.world.broker.stop()
    data = without_the_second(log)
    write_beside(lease, data)  # by a task that outlives the broker
    await upkeep.world.start()
    assert not upkeep.staged
    with pytest.raises(ResourceNotFound):
        await upkeep.commit(lease, data)
    with pytest.raises(InvalidUpdateVersion):
        await upkeep.begin(log, leader_epoch=(await upkeep.describe()).leader_epoch)
    assert await upkeep.values() == {number: b"%d" % number for number in range(SEGMENTS)}


async def test_what_was_cleaned_is_remembered_for_as_long_as_it_is_there(upkeep: Upkeep) -> None:
    log = await upkeep.create()

    async def set_cleaned(offset: int, segments: tuple[SegmentDescription, ...]) -> int:
        request = set_cleaned_offset.SetCleanedOffsetRequest(
            partition=NAME, leader_epoch=0, offset=offset, segments=segments
        )
        await upkeep.world.broker.serve(set_cleaned_offset.API, request)
        return (await upkeep.describe()).cleaned_offset

    assert log.cleaned_offset == 0
    assert await set_cleaned(3, log.segments[:3]) == 3
    with pytest.raises(InvalidUpdateVersion):
        await set_cleaned(4, (*log.segments[:3], replace(log.segments[3], identity="?")))
    with pytest.raises(OffsetOutOfRange):
        await set_cleaned(1000, log.segments[:3])
    await upkeep.world.broker.stop()
    await upkeep.world.start()
    assert (await upkeep.describe()).cleaned_offset == 3
    await asyncio.to_thread(upkeep.log.truncate_to, 2)
    assert (await upkeep.describe()).cleaned_offset == 2


async def test_a_file_is_read_to_its_end_as_it_was(upkeep: Upkeep, monkeypatch) -> None:
    monkeypatch.setattr(read_segment, "PIECE_BYTES", 50)
    for change in (replaced, removed_by_retention, deleted, made_again):
        log = await upkeep.create(change.__name__)
        before = bytes_of(log, log.segments[0])
        pieces = await upkeep.read(log, log.segments[0])
        got = await anext(pieces)
        await change(upkeep, log)
        async for piece in pieces:
            assert len(piece) <= 50
            got += piece
        assert got == before


async def test_a_file_that_is_cut_while_it_is_read_ends_in_an_error(upkeep: Upkeep, monkeypatch) -> None:
    monkeypatch.setattr(read_segment, "PIECE_BYTES", 50)
    log = await upkeep.create()
    pieces = await upkeep.read(log, log.segments[0])
    await anext(pieces)
    await asyncio.to_thread(upkeep.log.truncate_to, 0)
    with pytest.raises(InvalidUpdateVersion):
        async for _ in pieces:
            pass


async def test_a_description_keeps_nobody_waiting(upkeep: Upkeep, monkeypatch) -> None:
    await upkeep.create()
    loop = asyncio.get_running_loop()
    describe = Log.describe

    def slow(log: Log) -> tuple[SegmentDescription, ...]:
        asked = upkeep.world.broker.serve(list_topics.API, list_topics.ListTopicsRequest())
        answer = asyncio.run_coroutine_threadsafe(asked, loop).result(10)
        assert [topic.name for topic in answer.topics] == ["t"]
        return describe(log)

    monkeypatch.setattr(Log, "describe", slow)
    assert len((await upkeep.describe()).segments) == SEGMENTS


async def test_bytes_that_are_no_batch_keep_no_log_from_being_described(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    await upkeep.world.broker.stop()
    overwrite(log, log.segments[1])
    await upkeep.world.start()
    first, second, *_ = (await upkeep.describe()).segments
    assert (first.first_timestamp_ms > 0, second.first_timestamp_ms) == (True, -1)
    assert second.size_bytes == log.segments[1].size_bytes


async def test_a_description_keeps_no_file_open(upkeep: Upkeep) -> None:
    await upkeep.create()
    await upkeep.world.broker.stop()
    await upkeep.world.start()
    before = opened(upkeep.world.folder)
    log = await upkeep.describe()
    assert all(segment.first_timestamp_ms > 0 for segment in log.segments)
    for segment in log.segments:
        assert [piece async for piece in await upkeep.read(log, segment)]
    for _ in range(100):  # a thread lets go of what it has read a moment after whoever asked has it
        if opened(upkeep.world.folder) == before:
            break
        await asyncio.sleep(0.01)
    assert not opened(upkeep.world.folder) - before


def opened(folder: str) -> Counter[str]:
    """How often this process holds the files under a folder open."""
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found[os.readlink(f"/proc/self/fd/{number}")] += 1
    return Counter({path: count for path, count in found.items() if path.startswith(folder)})


async def test_a_snapshot_that_stalls_or_is_too_large_leaves_nothing(world, batch, monkeypatch) -> None:
    monkeypatch.setattr(install_snapshot, "SILENCE_S", 0.02)
    await world.start()
    await world.create("__consumer_offsets")
    name = TopicPartition("__consumer_offsets", 0)
    world.broker.services.replicas.append(name, batch([b"x"]), acks=1)

    async def stalling() -> AsyncIterator[bytes]:
        yield b"a little"
        await asyncio.Event().wait()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 19)

    for chunks, error in ((stalling(), RequestTimedOut), (endless(), RecordListTooLarge)):
        request = install_snapshot.InstallSnapshotRequest(partition=name, leader_epoch=0, end_offset=1, chunks=chunks)
        with pytest.raises(error):
            await world.broker.serve(install_snapshot.API, request)
        assert not [file for file in os.listdir(f"{world.folder}/{name}") if ".checkpoint" in file]
