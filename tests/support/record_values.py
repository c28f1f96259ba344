"""What the tests of records share: values to write, and the golden folders."""

from __future__ import annotations

import struct

import pyarrow as pa
from hypothesis import strategies as st

from sparklog.records import arrow
from sparklog.records.batch import HEADER_SIZE, TimestampType, seal
from sparklog.records.records import Record
from support import GOLDEN

LOGS = sorted(GOLDEN.glob("*/*.log"))

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1

byte_strings = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=20)), max_size=4)
timestamps = st.integers(-1, 2**45) | st.integers(-(2**62), 2**62)


@st.composite
def records(draw: st.DrawFn, max_size: int = 12) -> list[Record]:
    """Records that fit in one batch: offsets increase, with gaps, and there is one timestamp type."""
    offset = draw(st.integers(0, 2**50))
    timestamp_type = draw(st.sampled_from(TimestampType))
    append_time = draw(timestamps)
    result = []
    for step in draw(st.lists(st.integers(1, 3) | st.integers(1, 2**20), min_size=1, max_size=max_size)):
        result.append(
            Record(
                offset=offset,
                timestamp_ms=draw(timestamps) if timestamp_type is TimestampType.CREATE_TIME else append_time,
                timestamp_type=timestamp_type,
                key=draw(byte_strings),
                value=draw(byte_strings),
                headers=tuple(draw(header_lists)),
            )
        )
        offset += step
    return result


def to_rows(values: list[Record]) -> pa.RecordBatch:
    """The records as Arrow has them."""
    rows = [
        {
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestampType": int(record.timestamp_type),
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
        }
        for record in values
    ]
    fields = [field if field.name != "timestamp" else pa.field("timestamp", pa.int64()) for field in arrow.schema()]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema(fields))
    return batch.set_column(1, "timestamp", batch.column("timestamp").view(arrow.schema().field("timestamp").type))


def varint(number: int) -> bytes:
    """A zigzag varint of any size."""
    rest = (number << 1) if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def batch_of(
    body: bytes, *, count: int, last_delta: int | None = None, attributes: int = 0, base_offset: int = 0
) -> bytes:
    """A batch with any body, its CRC right."""
    last = count - 1 if last_delta is None else last_delta
    header = struct.pack(
        ">qiibIhiqqqhii", base_offset, HEADER_SIZE - 12 + len(body), 0, 2, 0, attributes, last, 0, 0, -1, -1, -1, count
    )
    batch = bytearray(header + body)
    seal(batch)
    return bytes(batch)


def framed(body: bytes) -> bytes:
    """A record's body behind its length."""
    return varint(len(body)) + body
