"""Descriptions of logs and reads of segments for jobs: a stable view, without blocking the broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter

import pytest

from sparklog.base.errors import InvalidUpdateVersion
from sparklog.broker.apis import list_topics, read_segment
from sparklog.log.description import SegmentDescription
from sparklog.log.replacement.replace import SegmentReplacer
from support.brokers.segment_replacement import (
    SEGMENTS,
    Upkeep,
    bytes_of,
    deleted,
    made_again,
    overwrite,
    removed_by_retention,
    replaced,
)
from support.patience import PATIENCE_S, until


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


async def test_a_description_does_not_block_the_event_loop(upkeep: Upkeep, monkeypatch) -> None:
    await upkeep.create()
    loop = asyncio.get_running_loop()
    describe = SegmentReplacer.describe

    def slow(replacer: SegmentReplacer) -> tuple[SegmentDescription, ...]:
        asked = upkeep.world.broker.serve(list_topics.API, list_topics.ListTopicsRequest())
        answer = asyncio.run_coroutine_threadsafe(asked, loop).result(PATIENCE_S)
        assert [topic.name for topic in answer.topics] == ["t"]
        return describe(replacer)

    monkeypatch.setattr(SegmentReplacer, "describe", slow)
    assert len((await upkeep.describe()).segments) == SEGMENTS


async def test_a_log_with_invalid_bytes_can_be_described(upkeep: Upkeep) -> None:
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
    # The thread that reads closes its file a moment after the caller has the bytes.
    await until(lambda: not opened(upkeep.world.folder) - before, "no more files are open than before")


def opened(folder: str) -> Counter[str]:
    """Return the number of open handles of this process by file, for files under a folder."""
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found[os.readlink(f"/proc/self/fd/{number}")] += 1
    return Counter({path: count for path, count in found.items() if path.startswith(folder)})
