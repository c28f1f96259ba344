"""Apache Kafka reads batches of many compressed blocks as we wrote them, and old message sets as we read them."""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.records import arrow
from sparklog.records.batch import Codec, assign
from sparklog.records.compression import compress
from sparklog.records.records import Record, read_records, write_records

SEGMENT = "00000000000000000000.log"


def test_batches_of_many_blocks_are_valid_in_every_codec(tmp_path: Path, dump_log_segments: Callable[..., str]) -> None:
    text = b"".join(b"%d fields and some text, " % i for i in range(400))
    values = [text[i:] + os.urandom(500) * (i % 50) for i in range(100)]  # blocks that shrink and blocks that do not
    data = bytearray()
    for codec in Codec:
        batch = arrow.encode(pa.table({"value": pa.array(values, pa.binary())}), default_timestamp_ms=1, codec=codec)
        assign(batch, 0, base_offset=int(codec) * len(values), leader_epoch=0)
        data += batch
    (tmp_path / SEGMENT).write_bytes(data)

    dumped = dump_log_segments(tmp_path / SEGMENT)

    assert re.findall(r"compresscodec: (\w+) .*isvalid: true", dumped) == [codec.name.lower() for codec in Codec]
    sizes = [int(size) for size in re.findall(r"^\| .*valueSize: (\d+) ", dumped, re.MULTILINE)]
    assert sizes == [len(value) for value in values] * len(Codec)


def message(offset: int, value: bytes, *, magic: int, timestamp: int = 0, attributes: int = 0) -> bytes:
    body = struct.pack(">BB", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def old_log() -> bytes:
    """Plain messages and wrappers of both old formats, every codec, both kinds of timestamps, v2 at the end."""
    data = bytearray()
    offset = 10
    for magic in (0, 1):
        data += message(offset, b"plain", magic=magic, timestamp=offset)
        offset += 2
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            for append_time in (0, 8 * magic):
                inner = [message(i if magic else offset + i, b"inner", magic=magic, timestamp=i) for i in range(3)]
                content = bytearray(compress(codec, b"".join(inner)))
                if codec is Codec.LZ4 and magic == 0:
                    content[6] ^= 0x55  # the wrong header checksum of that time
                data += message(
                    offset + 2, content, magic=magic, timestamp=500 + offset, attributes=codec | append_time
                )
                offset += 4
    return bytes(data + write_records([Record(offset=offset, timestamp_ms=9, value=b"new")], leader_epoch=0))


@pytest.mark.parametrize("converted", [False, True])
def test_old_messages_are_what_kafka_says_they_are(
    converted: bool, tmp_path: Path, dump_log_segments: Callable[..., str]
) -> None:
    data = old_log()
    rows = arrow.decode(data)
    assert len(rows) == 2 + 2 * 3 * 2 * 3 + 1
    if converted:
        data = bytes(arrow.encode(rows, default_timestamp_ms=0, keep_offsets=True))
        assert len(read_records(data)) == len(rows)
    (tmp_path / SEGMENT).write_bytes(data)

    dumped = dump_log_segments(tmp_path / SEGMENT, options=("--deep-iteration", "--print-data-log"))

    pattern = r"^\| offset: (\d+) (?:(CreateTime|LogAppendTime|NoTimestampType): (-?\d+) )?.*payload: (\w+)$"
    found = re.findall(pattern, dumped, re.MULTILINE)
    assert [int(offset) for offset, *_ in found] == rows.column("offset").to_pylist()
    assert [payload.encode() for *_, payload in found] == rows.column("value").to_pylist()
    assert [int(time or -1) for _, _, time, _ in found] == rows.column("timestamp").view(pa.int64()).to_pylist()
    if not converted:
        kinds = [int(kind == "LogAppendTime") for _, kind, _, _ in found]
        assert kinds == rows.column("timestampType").to_pylist()
