"""Replacements with an outdated or invalid plan are refused, and leave no files."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sparklog.base.errors import (
    CorruptRecord,
    FencedLeaderEpoch,
    InvalidRecord,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    ResourceNotFound,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import set_cleaned_offset
from sparklog.broker.apis.replace_segments import BeginReplaceResponse
from support.brokers.segment_replacement import (
    NAME,
    Upkeep,
    deleted,
    files_in,
    is_staged,
    made_again,
    removed_by_retention,
    replaced,
    truncated,
    truncated_and_written_again,
    without_the_second,
)

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


async def test_segments_that_must_not_replace_the_sources_are_refused(upkeep: Upkeep) -> None:
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


async def test_invalid_replacement_requests_are_refused(upkeep: Upkeep) -> None:
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
