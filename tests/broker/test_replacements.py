"""Segments replaced through a broker's APIs: reads, waiting requests, and the state after a failed disk or a stop."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sparklog.base.errors import (
    DuplicateResource,
    InvalidUpdateVersion,
    KafkaStorageError,
    OffsetOutOfRange,
    ResourceNotFound,
)
from sparklog.broker.apis import set_cleaned_offset
from sparklog.broker.replacements import COMMITS_AT_ONCE
from sparklog.log.description import SegmentDescription
from sparklog.log.replacement.replace import SegmentReplacer
from sparklog.log.replacement.swap import StagedFile
from support.brokers.segment_replacement import NAME, SEGMENTS, Upkeep, bytes_of, without_the_second, write_beside
from support.patience import PATIENCE_S


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


async def test_repeated_commits_and_aborts_change_nothing(upkeep: Upkeep) -> None:
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


async def test_a_commit_completes_though_its_client_has_disconnected(upkeep: Upkeep, monkeypatch) -> None:
    log = await upkeep.create()
    data = without_the_second(log)
    lease = await upkeep.begin(log)
    await upkeep.upload(lease, data)
    loop, has_begun, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    put_in_place = SegmentReplacer.replace

    def slow(replacer: SegmentReplacer, *args, **fields) -> SegmentDescription:
        loop.call_soon_threadsafe(has_begun.set)
        assert may_end.wait(PATIENCE_S)
        return put_in_place(replacer, *args, **fields)

    monkeypatch.setattr(SegmentReplacer, "replace", slow)
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


async def test_commits_leave_threads_for_other_work(upkeep: Upkeep, monkeypatch) -> None:
    leases = []
    for number in range(COMMITS_AT_ONCE + 1):
        log = await upkeep.create(f"t{number}")
        lease = await upkeep.begin(log)
        write_beside(lease, without_the_second(log))
        leases.append((lease, without_the_second(log)))
    begun, may_end = [], threading.Event()
    put_in_place = SegmentReplacer.replace

    def slow(replacer: SegmentReplacer, *args, **fields) -> SegmentDescription:
        begun.append(log)
        assert may_end.wait(PATIENCE_S)
        return put_in_place(replacer, *args, **fields)

    monkeypatch.setattr(SegmentReplacer, "replace", slow)
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


async def test_a_start_has_no_leases_and_removes_staged_files(upkeep: Upkeep) -> None:
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


async def test_the_cleaned_offset_is_kept_until_a_truncation(upkeep: Upkeep) -> None:
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
