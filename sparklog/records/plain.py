"""Conversion of batches to Arrow columns and back without kernels, for the seconds in which kernels are compiled.

`encode_all` and `decode_batches` return the same as those of `arrow`, but work one record at a time: some hundred
thousand records a second. Memory besides the data and the columns: Python objects for ROWS_TOGETHER records, and up to
75 bytes for each byte of a batch, so callers keep `limit_bytes` low.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from sparklog.base.errors import InvalidRecord, SparklogError
from sparklog.base.fs import Buffer
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges
from sparklog.records.batch import (
    CONTROL_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    check_batch,
    size_and_magic,
)
from sparklog.records.compression import LIMIT_BYTES, ExceedsLimit
from sparklog.records.legacy import convert_messages
from sparklog.records.records import Headers, Record, iterate_records, write_batches
from sparklog.records.schema import UNITS_PER_MS, schema

ROWS_TOGETHER = 10_000
SMALLEST = 17
"""Bytes from which the size and the format of a batch can be read."""


def encode_all(
    table: pa.Table, *, max_batch_bytes: int, default_timestamp_ms: int, codec: Codec, level: int | None = None
) -> list[bytearray]:
    """Return all rows as batches, as `arrow.encode_all` does. The table must be valid.

    Raises InvalidRecord if a header has no key.
    """
    rows = _rows(table, default_timestamp_ms)
    return list(write_batches(rows, max_batch_bytes=max_batch_bytes, codec=codec, level=level))


def decode_batches(
    data: Buffer, *, offset_from: int = 0, limit_bytes: int = LIMIT_BYTES, aborted: AbortedRanges = NONE_ABORTED
) -> Iterator[pa.RecordBatch]:
    """Yield the records from `offset_from` on, as `arrow.decode_batches` does, in other portions. Raises as it does."""
    some: list[Record] = []
    size = 0
    try:
        for record in _records(data, limit_bytes, aborted):
            if record.offset >= offset_from:
                some.append(record)
                size += len(record.key or b"") + len(record.value or b"")
            if len(some) == ROWS_TOGETHER or size > limit_bytes:
                yield _to_arrow(some)
                some, size = [], 0
    except SparklogError:
        if some:  # the records before the failing batch must be yielded before its error
            yield _to_arrow(some)
        raise
    if some:
        yield _to_arrow(some)


def _records(data: Buffer, limit_bytes: int, aborted: AbortedRanges) -> Iterator[Record]:
    position = 0
    while len(data) - position >= SMALLEST:
        size, magic = size_and_magic(data, position)
        if magic < MAGIC:
            converted, after = convert_messages(data, position, max_bytes=limit_bytes, limit_bytes=limit_bytes)
            yield from _records(converted, limit_bytes, aborted)
            if after == position:  # the last message is cut off
                return
            position = after
            continue
        if size > len(data) - position:
            return
        header = check_batch(data, position)
        if header.record_count and not _is_skipped(header, aborted):
            if header.size > limit_bytes:
                raise ExceedsLimit(f"the batch at offset {header.base_offset} takes {header.size} bytes")
            yield from iterate_records(data, position, limit_bytes=limit_bytes)
        position += size


def _is_skipped(header: BatchHeader, aborted: AbortedRanges) -> bool:
    if header.attributes & CONTROL_BIT:
        return True
    if not (header.attributes & TRANSACTIONAL_BIT and len(aborted)):
        return False
    return bool(aborted.contain(np.array([header.producer_id]), np.array([header.base_offset]))[0])


def _to_arrow(records: list[Record]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "offset": [record.offset for record in records],
        "timestamp": [record.timestamp_ms for record in records],
        "timestampType": [int(record.timestamp_type) for record in records],
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "headers": [record.headers for record in records],
    }
    return pa.RecordBatch.from_pydict(columns, schema=schema())


def _rows(table: pa.Table, default_timestamp_ms: int) -> Iterator[Record]:
    for at in range(0, table.num_rows, ROWS_TOGETHER):
        part = table.slice(at, ROWS_TOGETHER)
        nothing = [None] * part.num_rows
        keys, values, headers = (
            part[name].to_pylist() if name in table.column_names else nothing for name in ("key", "value", "headers")
        )
        timestamps = _timestamps(part["timestamp"]) if "timestamp" in table.column_names else nothing
        for row, (key, value, pairs, timestamp_ms) in enumerate(
            zip(keys, values, headers, timestamps, strict=True), at
        ):
            yield Record(
                offset=row,
                timestamp_ms=default_timestamp_ms if timestamp_ms is None else timestamp_ms,
                key=_bytes(key),
                value=_bytes(value),
                headers=_headers(pairs, row),
            )


def _timestamps(column: pa.ChunkedArray) -> list[int | None]:
    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    if column.type.unit == "s":
        column = column.cast(pa.timestamp("ms", column.type.tz))
    per_ms = UNITS_PER_MS[column.type.unit]
    return [None if each is None else each // per_ms for each in column.cast(pa.int64()).to_pylist()]


def _headers(pairs: list[dict[str, Any]] | None, row: int) -> Headers:
    found = []
    for pair in pairs or ():
        key = _bytes(pair["key"]) if pair else None
        if key is None:
            raise InvalidRecord(f"row {row}: a header has no key")
        found.append((key.decode(), _bytes(pair["value"])))
    return tuple(found)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
