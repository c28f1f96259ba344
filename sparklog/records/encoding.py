"""Encodes Arrow columns as record batches.

The columns `key`, `value`, `headers` and `timestamp` are found by name, in any order; other columns are ignored and
missing ones are null. Keys and values may have any binary or string type. Headers are a list of structs of a text and
a binary, or a map of them. Timestamps have any unit, or are integers in ms.

The rows may be untrusted, such as a client's Arrow message, so every offset in them is checked against its data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.base.errors import InvalidRecord
from sparklog.records import encode_kernels as kernels
from sparklog.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Codec,
    TimestampType,
    build_header,
    seal,
)
from sparklog.records.compression import compress
from sparklog.records.encode_kernels import RecordColumns
from sparklog.records.kernels import MAX_INT, StringColumn
from sparklog.records.schema import HEADERS_TYPE, UNITS_PER_MS

_MOST_EMPTY_ROWS = 1_000_000  # a column of nulls takes no memory in Arrow, but its encoded rows do


def encode(
    records: pa.RecordBatch | pa.Table,
    *,
    default_timestamp_ms: int,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    keep_offsets: bool = False,
    is_transactional: bool = False,
) -> bytearray:
    """Return all rows as one batch; a missing timestamp becomes `default_timestamp_ms`.

    Offsets run from `base_offset`; with `keep_offsets` they come from the column `offset` and must increase, as for
    the batches of a compacted log.

    Raises InvalidRecord if there are no rows, a header has no key, a column is not valid, or the batch would have 2^31
    bytes or more.
    """
    batches = encode_all(
        records,
        max_batch_bytes=MAX_INT,
        default_timestamp_ms=default_timestamp_ms,
        codec=codec,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        timestamp_type=timestamp_type,
        keep_offsets=keep_offsets,
        is_transactional=is_transactional,
    )
    if len(batches) != 1:
        raise InvalidRecord(f"{records.num_rows} rows do not make one batch, but {len(batches)}")
    return batches[0]


def encode_all(
    records: pa.RecordBatch | pa.Table,
    *,
    max_batch_bytes: int,
    default_timestamp_ms: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    keep_offsets: bool = False,
    is_transactional: bool = False,
) -> list[bytearray]:
    """Return all rows as batches of at most `max_batch_bytes` before compression; a larger record gets its own batch.

    level: of the codec, as in `compress`. Offsets and sequence numbers continue from batch to batch. Raises as `encode`
    does, but no rows give no batches.
    """
    rows = _record_columns(records, default_timestamp_ms, keep_offsets)
    attributes = codec | (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    batches = []
    for first, end, content, greatest in _contents(rows, max_batch_bytes - HEADER_SIZE):
        records_bytes = content if codec is Codec.NONE else compress(codec, content, level)
        offset, last_delta = _batch_offsets(rows, first, end, base_offset)
        batch = build_header(
            base_offset=offset,
            records_size=len(records_bytes),
            leader_epoch=leader_epoch,
            attributes=attributes,
            last_offset_delta=last_delta,
            base_timestamp=int(rows.timestamps[first]),
            max_timestamp=greatest,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence if base_sequence < 0 else (base_sequence + first) % (MAX_INT + 1),
            record_count=end - first,
        )
        batch += records_bytes
        seal(batch)
        batches.append(batch)
    return batches


def _contents(rows: RecordColumns, max_bytes: int) -> Iterator[tuple[int, int, memoryview, int]]:
    """Yield for each batch its first row, the row after its last, the bytes of its records, its greatest timestamp."""
    total = len(rows.timestamps)
    sizes = np.empty(total, np.int32)
    ends, totals, greatest = np.empty((3, total), np.int64)
    batches, row = kernels.measure_batches(rows, max_bytes, sizes, ends, totals, greatest)
    if batches < 0:
        raise InvalidRecord(f"row {row}: {kernels.FAULTS[-batches]}")
    output = np.empty(int(totals[:batches].sum()) + kernels.ROOM, np.uint8)
    if not kernels.write_batches(rows, batches, sizes, ends, totals, output):
        raise InvalidRecord("the rows changed while they were read")
    first = position = 0
    measured = zip(ends[:batches].tolist(), totals[:batches].tolist(), greatest[:batches].tolist(), strict=True)
    for end, size, timestamp in measured:
        yield first, end, output.data[position : position + size], timestamp
        first, position = end, position + size


def _batch_offsets(rows: RecordColumns, first: int, end: int, base_offset: int) -> tuple[int, int]:
    """Return base offset and last offset delta of the batch of rows [first, end)."""
    if not len(rows.offsets):
        return base_offset + first, end - first - 1
    return int(rows.offsets[first]), int(rows.offsets[end - 1] - rows.offsets[first])


def _record_columns(records: pa.RecordBatch | pa.Table, default_timestamp_ms: int, keep_offsets: bool) -> RecordColumns:
    """Return the columns in the kernels' form. Raises InvalidRecord if they are not valid."""
    try:
        records.validate()
        if records.num_rows > records.nbytes + _MOST_EMPTY_ROWS:
            raise pa.ArrowInvalid(f"{records.num_rows} rows in {records.nbytes} bytes")
        header_starts, header_counts, header_key, header_value = _header_columns(records)
        return RecordColumns(
            offsets=_offsets(records) if keep_offsets else np.empty(0, np.int64),
            timestamps=_timestamps(_column(records, "timestamp"), records.num_rows, default_timestamp_ms),
            key=_string_column(_column(records, "key"), records.num_rows),
            value=_string_column(_column(records, "value"), records.num_rows),
            header_starts=header_starts,
            header_counts=header_counts,
            header_key=header_key,
            header_value=header_value,
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRecord(f"the columns are not what they should be: {error}") from None


def _column(records: pa.RecordBatch | pa.Table, name: str) -> Any:
    """Return the column as one array; None if it is missing or of the null type."""
    indices = records.schema.get_all_field_indices(name)
    if not indices:
        return None
    if len(indices) > 1:
        raise pa.ArrowInvalid(f"{len(indices)} columns are named {name}")
    column = records.column(indices[0])
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            raise pa.ArrowInvalid(f"column {name} has too many bytes for one array")
    return None if pa.types.is_null(column.type) else column


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    column.validate(full=True)  # a cast trusts its input
    return column.cast(kind)


def _array(buffer: pa.Buffer | None, dtype: Any) -> NDArray[Any]:
    data: Any = b"" if buffer is None else buffer
    array = np.frombuffer(data, dtype, len(data) // np.dtype(dtype).itemsize)
    array.flags.writeable = False
    return array


def _starts_and_sizes(column: pa.Array, data_size: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return starts and sizes (null: -1) of a column of variable size, checked against `data_size`."""
    offsets = _array(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    if not len(column):
        return offsets, np.empty(0, np.int32)
    if len(offsets) != len(column) + 1:
        raise pa.ArrowInvalid(f"{len(offsets)} offsets for {len(column)} values")
    sizes = np.diff(offsets)
    if offsets[0] < 0 or offsets[-1] > data_size or sizes.min() < 0:
        raise pa.ArrowInvalid("the offsets of a column leave its data")
    if column.null_count:
        sizes[_null_mask(column)] = -1
    return offsets, sizes


def _null_mask(column: pa.Array) -> NDArray[np.bool_]:
    """Return where the column is null. Reads the bits, because pyarrow's own method loads pandas."""
    bits = np.unpackbits(_array(column.buffers()[0], np.uint8), bitorder="little")
    if len(bits) < column.offset + len(column):
        raise pa.ArrowInvalid(f"{len(bits)} validity bits for {column.offset + len(column)} values")
    return ~bits[column.offset : column.offset + len(column)].astype(np.bool_)


def _string_column(column: pa.Array | None, rows: int) -> StringColumn:
    if column is None:
        return StringColumn(
            starts=_array(bytes(4 * rows), np.int32), sizes=np.full(rows, -1, np.int32), data=_array(None, np.uint8)
        )
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        column = _cast(column, pa.binary())
    data = _array(column.buffers()[2], np.uint8)
    starts, sizes = _starts_and_sizes(column, len(data))
    return StringColumn(starts=starts, sizes=sizes, data=data)


def _header_columns(
    records: pa.RecordBatch | pa.Table,
) -> tuple[NDArray[np.int32], NDArray[np.int32], StringColumn, StringColumn]:
    """Return the starts and counts of each row's headers, and all headers' keys and values."""
    column = _column(records, "headers")
    if column is None:
        nothing = np.zeros(records.num_rows, np.int32)
        return nothing, nothing, _string_column(None, 0), _string_column(None, 0)
    if column.type != HEADERS_TYPE:
        column = _cast(column, HEADERS_TYPE)
    entries = column.values
    starts, counts = _starts_and_sizes(column, len(entries))
    key, value = _string_column(entries.field(0), len(entries)), _string_column(entries.field(1), len(entries))
    if entries.null_count:
        key.sizes[_null_mask(entries)] = -1
    return starts[: len(counts)].copy(), np.maximum(counts, 0), key, value


def _integers(column: pa.Array) -> NDArray[np.int64]:
    """Return a copy of a column of timestamps or integers as int64; null rows have arbitrary numbers."""
    if not (pa.types.is_timestamp(column.type) or pa.types.is_int64(column.type)):
        column = _cast(column, pa.int64())
    integers = _array(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)].copy()
    if len(integers) != len(column):
        raise pa.ArrowInvalid(f"{len(integers)} numbers for {len(column)} values")
    return integers


def _offsets(records: pa.RecordBatch | pa.Table) -> NDArray[np.int64]:
    column = _column(records, "offset")
    if column is None or column.null_count:
        raise pa.ArrowInvalid("the column offset is missing, or null in places")
    return _integers(column)


def _timestamps(column: pa.Array | None, rows: int, default_timestamp_ms: int) -> NDArray[np.int64]:
    if column is None:
        return np.full(rows, default_timestamp_ms, np.int64)
    if pa.types.is_timestamp(column.type) and column.type.unit == "s":
        column = _cast(column, pa.timestamp("ms", column.type.tz))
    timestamps = _integers(column)
    if pa.types.is_timestamp(column.type) and column.type.unit != "ms":
        timestamps //= UNITS_PER_MS[column.type.unit]
    if column.null_count:
        timestamps[_null_mask(column)] = default_timestamp_ms
    return timestamps
