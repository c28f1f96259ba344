"""Batches, clocks and configurations for the tests of the log."""

from __future__ import annotations

import os

from sparklog.base.fs import Fs, ReadFs
from sparklog.base.topic_config import TopicConfig
from sparklog.log.log import Log
from sparklog.records.batch import iterate_headers
from sparklog.records.records import Record, write_records
from sparklog.testing.sim.clock import SimClock

START_MS = 1_700_000_000_000


def batch(
    count: int = 1,
    *,
    timestamp_ms: int = START_MS,
    value: bytes = b"value",
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
) -> bytearray:
    """A produced batch of `count` records, a millisecond apart; numbered from `sequence` if it has a producer id."""
    if producer_id < 0:
        return write_records([Record(offset=i, timestamp_ms=timestamp_ms + i, value=value) for i in range(count)])
    records = [
        Record(offset=i, timestamp_ms=timestamp_ms + i, value=value, sequence=(sequence + i) % (1 << 31))
        for i in range(count)
    ]
    return write_records(records, producer_id=producer_id, producer_epoch=epoch, transactional=transactional)


def topic_config(**values: object) -> TopicConfig:
    """Small segments and dense indexes, so that a few batches show everything; `values` over that."""
    return TopicConfig(**({"internal_segment_bytes": 1000, "index_interval_bytes": 100} | values))  # type: ignore[arg-type]


def open_log(
    fs: Fs,
    folder: str = "/logs/orders-0",
    *,
    clock: SimClock | None = None,
    config: TopicConfig | None = None,
    **how: object,
) -> Log:
    how = {"clean": True} | how
    return Log.open(fs, folder, config or topic_config(), clock or SimClock(START_MS), **how)  # type: ignore[arg-type]


def open_files(beginning: str) -> list[str]:
    """Those of this process whose path begins so."""
    paths = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
    return [path for path in paths if path.startswith(beginning)]


def read_all(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> bytes:
    """Everything from an offset (None: the log start) to the log's end."""
    found = b""
    offset = log.log_start_offset if offset is None else offset
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes)
        assert piece.size > 0, f"nothing at offset {offset} of {log!r}"
        assert piece.next_offset > offset
        found += piece.read()
        offset = piece.next_offset
    return found


def offsets_in(data: bytes) -> list[int]:
    """The offset of each record in whole batches."""
    return [offset for _, each in iterate_headers(data) for offset in range(each.base_offset, each.next_offset)]


def rewrite(fs: Fs, path: str, content: bytes) -> None:
    """Put `content` in the place of what the file has, or make one of it."""
    file = fs.open(path, create=True)
    try:
        file.truncate(0)
        file.append(content)
    finally:
        file.close()


def file_content(fs: ReadFs, path: str) -> bytes:
    file = fs.open_read(path)
    try:
        return file.read_at(0, file.size)
    finally:
        file.close()


def check_indexes(log: Log) -> None:
    """Every index entry says what the file says."""
    for segment in log.segments:
        places = {place.position: place for place in segment.walk(0, segment.size_bytes)}
        for number in range(len(segment.offsets)):
            offset, position = segment.offsets[number]
            assert places[position].last_offset == offset
        latest = -1
        by_offset = {}
        for place in places.values():
            latest = max(latest, place.max_timestamp_ms)
            by_offset[place.last_offset] = latest
        for number in range(len(segment.times)):
            timestamp, offset = segment.times[number]
            assert by_offset[offset] == timestamp
        if segment.is_flushed:
            assert segment.times.last.timestamp_ms == latest
