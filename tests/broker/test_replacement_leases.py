"""Leases of replacements: their end, their replacement, and uploads that stall or are too large."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from sparklog.base.errors import DuplicateResource, RecordListTooLarge, RequestTimedOut, ResourceNotFound
from sparklog.base.ids import TopicPartition
from sparklog.broker import background_tasks
from sparklog.broker.apis import install_snapshot, replace_segments
from support.brokers.segment_replacement import Upkeep, without_the_second
from support.patience import until

pytestmark = pytest.mark.slow


async def test_an_expired_lease_ends_and_its_staged_file_is_removed(upkeep: Upkeep) -> None:
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


async def test_a_periodic_task_ends_expired_leases(world, batch, monkeypatch) -> None:
    monkeypatch.setattr(background_tasks, "LEASE_INTERVAL_MS", 1)
    await world.start()
    upkeep = Upkeep(world, batch)
    await upkeep.upload(await upkeep.begin(await upkeep.create(), lease_ms=1000), b"half of it")
    world.clock.advance(1000)
    await until(lambda: not upkeep.staged, "the file is gone")
    assert not len(world.broker.services.replacements)


async def test_an_expired_lease_is_free_even_before_the_periodic_task(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    await upkeep.upload(await upkeep.begin(log, lease_ms=1000), b"old")
    upkeep.world.clock.advance(1000)
    lease = await upkeep.begin(log, holder="another")
    assert not upkeep.staged
    data = without_the_second(log)
    await upkeep.upload(lease, data)
    await upkeep.world.broker.services.replacements.expire()
    await upkeep.commit(lease, data)


async def test_only_the_holder_replaces_its_lease_and_begins_without_staged_bytes(upkeep: Upkeep) -> None:
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


async def test_only_the_last_upload_of_a_lease_counts(upkeep: Upkeep) -> None:
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

    request = replace_segments.UploadSegmentRequest(lease_id=lease.lease_id, pieces=slow())
    first = asyncio.create_task(upkeep.world.broker.serve(replace_segments.UPLOAD_SEGMENT, request))
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

    request = replace_segments.UploadSegmentRequest(lease_id=lease.lease_id, pieces=stalling())
    with pytest.raises(ResourceNotFound):
        await upkeep.world.broker.serve(replace_segments.UPLOAD_SEGMENT, request)
    assert not upkeep.staged
    await upkeep.begin(log, holder="another")


async def test_an_upload_that_stalls_does_not_end_the_lease_of_one_that_began_later(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    data = without_the_second(log)
    lease = await upkeep.begin(log, lease_ms=1_000)
    has_begun = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield b"a little"
        has_begun.set()
        await asyncio.Event().wait()

    request = replace_segments.UploadSegmentRequest(lease_id=lease.lease_id, pieces=stalling())
    first = asyncio.create_task(upkeep.world.broker.serve(replace_segments.UPLOAD_SEGMENT, request))
    await has_begun.wait()
    await upkeep.upload(lease, data)
    with pytest.raises(ResourceNotFound):
        await first
    await upkeep.commit(lease, data)


async def test_uploads_above_the_size_limit_are_refused(upkeep: Upkeep) -> None:
    log = await upkeep.create()
    lease = await upkeep.begin(log)
    with pytest.raises(RecordListTooLarge):
        await upkeep.upload(lease, *[bytes(1 << 19)] * 100)
    assert not upkeep.staged
    with pytest.raises(ResourceNotFound):
        await upkeep.upload(lease, b"more")


async def test_a_snapshot_that_stalls_or_is_too_large_leaves_nothing(world, batch, monkeypatch) -> None:
    monkeypatch.setattr(install_snapshot, "SILENCE_S", 0.02)
    await world.start()
    await world.create("__consumer_offsets")
    name = TopicPartition("__consumer_offsets", 0)
    replicas = world.broker.services.replicas
    replicas.append(replicas.get_leader(name), batch([b"x"]), acks=1)

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
