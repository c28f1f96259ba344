"""Logs of small segments, and what may take the place of some of them, for the tests of replacement."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import pytest
from crc32c import crc32c

from sparklog.base.errors import KafkaStorageError
from sparklog.base.fs import Fs
from sparklog.log.description import SegmentDescription
from sparklog.log.log import Log
from sparklog.records.batch import HEADER_SIZE, BatchHeader, build_header, iterate_headers, seal
from support.logs.builders import START_MS, batch, file_content, open_log, topic_config

FOLDER = "/logs/orders-0"
Keep = Callable[[int], bool]


def written(fs: Fs, batches: int = 16, *, folder: str = FOLDER, **how: object) -> Log:
    """Batches of 3 records, a second apart, 3 to a segment, and a new leader epoch for every 5."""
    config = topic_config(file_delete_delay_ms=1000)
    log = open_log(fs, folder, **({"config": config} | how))
    for number in range(batches):
        log.append(batch(3, timestamp_ms=START_MS + number * 1000, value=b"x" * 60), leader_epoch=number // 5)
    return log


def even(base_offset: int) -> bool:
    """Of batches of 3 records: every second one stays."""
    return base_offset % 2 == 0


def content_of(fs: Fs, sources: Sequence[SegmentDescription], folder: str = FOLDER) -> bytes:
    """The batches of the sources, one behind the other."""
    return b"".join(file_content(fs, f"{folder}/{each.base_offset:020d}.log")[: each.size_bytes] for each in sources)


def cleaned(data: bytes, keep: Keep = even) -> bytes:
    """The batches of `data` that stay; of the last one at least its header."""
    kept = bytearray()
    for position, header in iterate_headers(data):
        if keep(header.base_offset):
            kept += data[position : position + header.size]
        elif position + header.size == len(data):
            kept += emptied(header)
    return bytes(kept)


def emptied(header: BatchHeader) -> bytes:
    """The header of a batch whose records are gone."""
    bare = build_header(
        base_offset=header.base_offset, records_size=0, leader_epoch=header.leader_epoch,
        attributes=header.attributes, last_offset_delta=header.last_offset_delta, base_timestamp=-1, max_timestamp=-1,
        producer_id=header.producer_id, producer_epoch=header.producer_epoch, base_sequence=header.base_sequence,
        record_count=0,
    )  # fmt: skip
    seal(bare)
    assert len(bare) == HEADER_SIZE
    return bytes(bare)


def stage(fs: Fs, log: Log, base_offset: int, data: bytes) -> None:
    """Write `data` where a new segment is to be."""
    file = fs.open(log.replacer.staged_path(base_offset), create=True)
    file.append(data)
    file.close()


def replace(
    fs: Fs, log: Log, sources: Sequence[SegmentDescription], data: bytes, *, high_watermark: int | None = None
) -> SegmentDescription:
    """Stage `data` and put it in the place of `sources`."""
    stage(fs, log, sources[0].base_offset, data)
    limit = log.log_end_offset if high_watermark is None else high_watermark
    return log.replacer.replace(sources, size_bytes=len(data), crc32c=crc32c(data), high_watermark=limit)


def stop_halfway(fs: Fs, log: Log, sources: Sequence[SegmentDescription]) -> None:
    """Let a replacement of `sources` run out of file descriptors where the log must not be used before a restart."""
    rename = fs.rename

    def run_out_of_descriptors(source: str, target: str) -> None:
        if target.endswith(".log"):
            raise OSError(errno.EMFILE, "too many open files")
        rename(source, target)

    fs.rename = run_out_of_descriptors  # type: ignore[method-assign]
    try:
        with pytest.raises(KafkaStorageError):
            replace(fs, log, sources, cleaned(content_of(fs, sources, log.folder)))
    finally:
        fs.rename = rename  # type: ignore[method-assign]


def clean(fs: Fs, log: Log, first: int, count: int, keep: Keep = even) -> SegmentDescription:
    """Replace `count` segments from the `first` one on by what stays of them."""
    sources = log.replacer.describe()[first : first + count]
    return replace(fs, log, sources, cleaned(content_of(fs, sources, log.folder), keep))


def records_in(data: bytes) -> list[int]:
    """The offset of each record; what is but a header has none."""
    return [
        offset
        for _, header in iterate_headers(data)
        if header.record_count
        for offset in range(header.base_offset, header.next_offset)
    ]


def marked(fs: Fs) -> list[str]:
    """What a replacement has left behind, or is in the middle of."""
    return [name for name in fs.list(FOLDER) if name.endswith((".cleaned", ".swap"))]
