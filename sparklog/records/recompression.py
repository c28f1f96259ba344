"""Recompression of produced batches with the codec of their topic (compression.type), as in Kafka's LogValidator.

A batch with the topic's codec stays unchanged, whatever its level. The records of other batches are decompressed and
compressed again; only codec, length and CRC of the header change.
"""

from __future__ import annotations

from typing import NamedTuple

from sparklog.base.errors import MessageTooLarge
from sparklog.base.fs import Buffer
from sparklog.base.topic_config import PRODUCER, UNCOMPRESSED, TopicConfig
from sparklog.records.batch import (
    ATTRIBUTES_LOW_BYTE_AT,
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Codec,
    build_header,
    check_produced,
    seal,
    size_and_magic,
)
from sparklog.records.compression import LIMIT_BYTES, ExceedsLimit, compress, decompress


class Compression(NamedTuple):
    """The codec and level of a topic's batches."""

    codec: Codec
    level: int | None = None
    """None: the codec has no levels."""


def compression_of(config: TopicConfig) -> Compression | None:
    """Return the compression of the topic's batches; None: the producer chooses."""
    name = config.compression_type
    if name == PRODUCER:
        return None
    codec = Codec.NONE if name == UNCOMPRESSED else Codec[name.upper()]
    levels = {Codec.GZIP: config.compression_gzip_level, Codec.ZSTD: config.compression_zstd_level}
    return Compression(codec, levels.get(codec))


def has_codec(data: Buffer, codec: Codec) -> bool:
    """Return whether every batch in `data` has the codec, up to the first unreadable header. Checks nothing else."""
    position, end = 0, len(data)
    while end - position >= HEADER_SIZE:
        size, magic = size_and_magic(data, position)
        if magic != MAGIC or size < HEADER_SIZE:
            break
        if data[position + ATTRIBUTES_LOW_BYTE_AT] & CODEC_MASK != codec:
            return False
        position += size
    return True


def recompress(
    data: bytearray | memoryview, to: Compression, *, max_batch_bytes: int, limit_bytes: int = LIMIT_BYTES
) -> bytearray | memoryview:
    """Return the batches of one produce request with the codec `to`; `data` itself if all have it.

    Takes memory for the content of one batch, at most `limit_bytes`. A batch above `max_batch_bytes` stays unchanged,
    because the append refuses it.

    Raises CorruptRecord if a batch cannot be decompressed or holds more than `limit_bytes`, MessageTooLarge if it is
    certain to exceed `max_batch_bytes`, and as `check_produced` does: a new CRC must not hide that the old one was
    wrong.
    """
    view = memoryview(data)
    batches: list[bytearray | memoryview] = []
    has_changed = False
    for position, header in check_produced(data):
        batch: bytearray | memoryview = view[position : position + header.size]
        if header.codec is not to.codec and header.size <= max_batch_bytes:
            batch = _recompress_batch(batch, header, to, max_batch_bytes, limit_bytes)
            has_changed = True
        batches.append(batch)
    if not has_changed:
        return data
    return batches[0] if len(batches) == 1 else bytearray().join(batches)


def _recompress_batch(
    batch: bytearray | memoryview, header: BatchHeader, to: Compression, max_batch_bytes: int, limit_bytes: int
) -> bytearray:
    most = limit_bytes
    if to.codec is Codec.NONE:
        most = min(most, max_batch_bytes - HEADER_SIZE)
    try:
        content = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], most)
    except ExceedsLimit:
        if most == limit_bytes:
            raise
        raise MessageTooLarge(
            f"a batch of {header.size} bytes has more uncompressed: max.message.bytes is {max_batch_bytes}, and "
            f"compression.type is {UNCOMPRESSED}"
        ) from None
    records = compress(to.codec, content, to.level)
    changed = build_header(
        base_offset=header.base_offset,
        records_size=len(records),
        leader_epoch=header.leader_epoch,
        attributes=header.attributes & ~CODEC_MASK | to.codec,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
    changed += records
    seal(changed)
    return changed
