"""Decodes record batches to Arrow columns.

The data is any number of batches, back to back, compressed or not. An incomplete last batch, with which an active
segment may end, is ignored. Message sets of formats v0 and v1 are converted (`legacy`). Control batches are left out:
they mark the ends of transactions, and hold no records. The batches of transactions in `aborted` are skipped by their
headers.

Memory besides the data: a batch may decompress to `limit_bytes`, and its columns may take twice that; a batch that
needs more is refused (ExceedsLimit). Including working space, decoding takes at most five times `limit_bytes`. Records
of common sizes take about their own size once more.

A header's key is text. Bytes that are not UTF-8 become U+FFFD, as in Java: an invalid string in an Arrow column would
cause an error in a later step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from msgspec import Struct
from numpy.typing import NDArray

from sparklog.base.errors import CorruptRecord, RecordListTooLarge
from sparklog.base.fs import Buffer
from sparklog.records import decode_kernels as kernels
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges, SeenTransactions
from sparklog.records.batch import CODEC_MASK, CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, Codec
from sparklog.records.compression import LIMIT_BYTES, ExceedsLimit, decompress
from sparklog.records.decode_kernels import FixedColumns, Selection, VariableColumn, VariableColumns
from sparklog.records.kernels import MAX_LONG
from sparklog.records.legacy import convert_messages
from sparklog.records.markers import read_marker
from sparklog.records.records import read_records
from sparklog.records.schema import COLUMNS, UNITS_PER_MS, schema

GROUP_BYTES = 32 * 1024 * 1024  # decode_batches starts a new group after this

Bytes = NDArray[np.uint8]
Table = NDArray[np.int64]

_WANTS = {
    "timestamp": kernels.WANT_TIMESTAMP,
    "timestampType": kernels.WANT_TIMESTAMP_TYPE,
    "key": kernels.WANT_KEY,
    "value": kernels.WANT_VALUE,
    "headers": kernels.WANT_HEADERS,
}
_SMALLEST_RECORD = 7  # bytes: six numbers and the attributes
_ROW_BYTES = 64  # size of an empty record in all columns, working space included
_HEADER_BYTES = 32  # the same for an empty header
_TABLE_ROWS = 16 * 1024
_CRC_FROM = 21  # the CRC covers a batch from here on
_PRODUCER_ID_BYTES = np.arange(43, 51)
_MARKER_BITS = TRANSACTIONAL_BIT | CONTROL_BIT
_MARKER_SIZE = 78
_MARKER_BYTES = np.arange(62, 70)
_USUAL_MARKER = np.array([0, 0, 0, 8], np.uint8)
"""After its length: no attributes, no timestamp and offset deltas, a key of 4 bytes; then version 0 and 0 for abort."""


class _DecodeOptions(Struct, frozen=True, kw_only=True):
    """The parsed arguments of decode or decode_batches."""

    schema: pa.Schema
    selection: Selection
    check_crc: bool
    group_bytes: int
    limit_bytes: int
    aborted: AbortedRanges
    seen: SeenTransactions | None

    @property
    def most_rows(self) -> int:
        return 2 * self.limit_bytes // _ROW_BYTES

    @property
    def most_headers(self) -> int:
        return 2 * self.limit_bytes // _HEADER_BYTES


class _BatchGroup(Struct, frozen=True, kw_only=True):
    """Batches that are decoded together: the table of their headers, and the bytes with their records."""

    data: Bytes
    decompressed: Bytes
    table: Table


def decode(
    data: Buffer,
    *,
    columns: Sequence[str] = COLUMNS,
    offset_from: int = 0,
    offset_to: int = MAX_LONG,
    timestamp_unit: str = "ms",
    check_crc: bool = True,
    limit_bytes: int = LIMIT_BYTES,
    aborted: AbortedRanges = NONE_ABORTED,
) -> pa.RecordBatch:
    """Return the records of `data` with offsets in [offset_from, offset_to), as the `columns` of `schema`.

    Omitted columns cost nothing. Offsets, and timestamps set by the broker, come from the header alone if a batch has
    no gaps.

    Raises CorruptRecord for a wrong CRC, an invalid batch or records that do not fit their batch, and
    RecordListTooLarge if the columns would take more than `limit_bytes` (see decode_batches).
    """
    request = _parse_options(
        columns,
        offset_from,
        offset_to,
        timestamp_unit,
        check_crc=check_crc,
        group_bytes=2 * GROUP_BYTES,
        limit_bytes=limit_bytes,
        aborted=aborted,
    )
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in _decode(as_bytes(data), request):
        size += batch.nbytes
        if batches and size > limit_bytes:
            raise RecordListTooLarge(
                f"{len(data)} bytes hold more than {limit_bytes} bytes of records: read fewer at once"
            )
        batches.append(batch)
    if not batches:
        no_batches = np.empty((0, kernels.TABLE_COLUMNS), np.int64)
        return _decode_columns(_make_group(as_bytes(b""), [], no_batches), request, 0)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def decode_batches(
    data: Buffer,
    *,
    columns: Sequence[str] = COLUMNS,
    offset_from: int = 0,
    offset_to: int = MAX_LONG,
    timestamp_unit: str = "ms",
    check_crc: bool = True,
    group_bytes: int = GROUP_BYTES,
    limit_bytes: int = LIMIT_BYTES,
    aborted: AbortedRanges = NONE_ABORTED,
    seen: SeenTransactions | None = None,
) -> Iterator[pa.RecordBatch]:
    """As decode, for data of any size: yield a pa.RecordBatch per `group_bytes` of records, none of them empty.

    `group_bytes` counts records after decompression; a larger batch is yielded whole, up to `limit_bytes`. `seen`
    gets the transactions of the batches.
    """
    request = _parse_options(
        columns,
        offset_from,
        offset_to,
        timestamp_unit,
        check_crc=check_crc,
        group_bytes=group_bytes,
        limit_bytes=limit_bytes,
        aborted=aborted,
        seen=seen,
    )
    return _decode(as_bytes(data), request)


def _parse_options(
    columns: Sequence[str],
    offset_from: int,
    offset_to: int,
    timestamp_unit: str,
    *,
    check_crc: bool,
    group_bytes: int,
    limit_bytes: int,
    aborted: AbortedRanges,
    seen: SeenTransactions | None = None,
) -> _DecodeOptions:
    chosen, want = _projection(tuple(columns), timestamp_unit)
    selection = Selection(
        want=want, offset_from=offset_from, offset_to=offset_to, units_per_ms=UNITS_PER_MS[timestamp_unit]
    )
    return _DecodeOptions(
        schema=chosen,
        selection=selection,
        check_crc=check_crc,
        group_bytes=min(group_bytes, limit_bytes // 2),  # its bytes exist twice while they are joined
        limit_bytes=limit_bytes,
        aborted=aborted,
        seen=seen,
    )


@lru_cache(maxsize=32)
def _projection(columns: tuple[str, ...], timestamp_unit: str) -> tuple[pa.Schema, int]:
    """Return the schema of the columns, and their bits for the kernels."""
    chosen = schema(columns, timestamp_unit=timestamp_unit)
    return chosen, sum(_WANTS[name] for name in set(columns) & _WANTS.keys())


def as_bytes(data: Any) -> Bytes:
    """Return the data as a read-only array, the only kind for which kernels are compiled."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def _decode(data: Bytes, request: _DecodeOptions) -> Iterator[pa.RecordBatch]:
    position = 0
    stopped = kernels.TABLE_FULL
    while stopped in (kernels.TABLE_FULL, kernels.OLD_FORMAT):
        table = np.empty((min(len(data) // 61 + 1, _TABLE_ROWS), kernels.TABLE_COLUMNS), np.int64)
        rows, position, stopped = kernels.scan_batches(data, position, request.group_bytes, table)
        for group in _batch_groups(data, table[:rows], request):
            yield from _decode_group(group, request)
        if stopped == kernels.OLD_FORMAT:
            before = position
            converted, position = convert_messages(
                data.data, position, max_bytes=request.group_bytes, limit_bytes=request.limit_bytes
            )
            yield from _decode(as_bytes(converted), request)
            if position == before:  # the last message is cut off
                return
    if stopped != kernels.END_OF_DATA:
        refuse(data, position, stopped)


def refuse(data: Bytes, position: int, stopped: int) -> NoReturn:
    """Raise CorruptRecord for what stopped `kernels.scan_batches` at the batch at `position`.

    stopped: BAD_LENGTH, BAD_COUNTS, or another number for an unknown magic
    """
    if stopped == kernels.BAD_LENGTH:
        raise CorruptRecord(f"the batch at position {position} claims a length that no batch has")
    if stopped == kernels.BAD_COUNTS:
        raise CorruptRecord(f"the batch at position {position} has a negative number of records or last offset delta")
    raise CorruptRecord(f"the batch at position {position} has magic {data[position + 16]}: no such format")


def _batch_groups(data: Bytes, table: Table, request: _DecodeOptions) -> Iterator[_BatchGroup]:
    """Yield the table's batches, checked and decompressed, at most `group_bytes` or one batch at a time."""
    if request.check_crc:
        check_crcs(data, table)
    _choose_actions(table, request.selection)
    if len(request.aborted):
        skip_aborted(data, table, request.aborted)
    if request.seen is not None:
        note_transactions(data, table, request.seen)
    compressed = ((table[:, kernels.ATTRIBUTES] & CODEC_MASK) != 0) & (table[:, kernels.ACTION] == kernels.READ)
    first = size = 0
    parts: list[Buffer] = []
    for row in np.flatnonzero(compressed).tolist():
        try:
            part = decompress_records(data, table[row], request.limit_bytes)
        except ExceedsLimit:
            if row > first:  # the batches before this one must be yielded before its error
                yield _make_group(data, parts, table[first:row])
            raise
        if parts and size + len(part) > request.group_bytes:
            yield _make_group(data, parts, table[first:row])
            first, size, parts = row, 0, []
        parts.append(part)
        table[row, kernels.RECORDS_START] = size
        size += len(part)
        table[row, kernels.RECORDS_END] = size
        table[row, kernels.ACTION] = kernels.READ_DECOMPRESSED
    yield _make_group(data, parts, table[first:])


def _make_group(data: Bytes, parts: list[Buffer], table: Table) -> _BatchGroup:
    return _BatchGroup(data=data, decompressed=as_bytes(parts[0] if len(parts) == 1 else b"".join(parts)), table=table)


def check_crcs(data: Bytes, table: Table) -> None:
    """Check the CRCs of all batches, even skipped ones: the CRC covers the fields that decide on skipping."""
    view = data.data
    starts = (table[:, kernels.START] + _CRC_FROM).tolist()
    ends = table[:, kernels.RECORDS_END].tolist()
    for row, (start, end, expected) in enumerate(zip(starts, ends, table[:, kernels.CRC].tolist(), strict=True)):
        crc = crc32c(view[start:end])
        if crc != expected:
            raise CorruptRecord(
                f"batch at offset {table[row, kernels.BASE_OFFSET]}, position {table[row, kernels.START]}: "
                f"CRC is {crc:#010x}, its header says {expected:#010x}"
            )


def _choose_actions(table: Table, selection: Selection) -> None:
    """Skip batches without a requested record, and only count batches whose header is enough."""
    count = table[:, kernels.RECORD_COUNT]
    last_delta = table[:, kernels.LAST_OFFSET_DELTA]
    attributes = table[:, kernels.ATTRIBUTES]
    if selection.want < kernels.WANT_KEY:
        countable = count == last_delta + 1
        if selection.want & kernels.WANT_TIMESTAMP:
            countable &= attributes & LOG_APPEND_TIME_BIT != 0
        table[countable, kernels.ACTION] = kernels.COUNT
    skip_others(table, selection.offset_from, selection.offset_to)


def skip_others(table: Table, offset_from: int, offset_to: int) -> None:
    """Skip batches without a record at these offsets."""
    base, last_delta = table[:, kernels.BASE_OFFSET], table[:, kernels.LAST_OFFSET_DELTA]
    skip = (table[:, kernels.ATTRIBUTES] & CONTROL_BIT != 0) | (table[:, kernels.RECORD_COUNT] == 0)
    skip |= (base >= offset_to) | (base + last_delta < offset_from)
    table[skip, kernels.ACTION] = kernels.SKIP


def skip_aborted(data: Bytes, table: Table, aborted: AbortedRanges) -> None:
    rows = np.flatnonzero(table[:, kernels.ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT) == TRANSACTIONAL_BIT)
    skipped = aborted.contain(producer_ids(data, table[rows]), table[rows, kernels.BASE_OFFSET])
    table[rows[skipped], kernels.ACTION] = kernels.SKIP


def producer_ids(data: Bytes, table: Table) -> NDArray[np.int64]:
    """Return the producer id of each batch in the table."""
    fields: Bytes = data[table[:, kernels.START, None] + _PRODUCER_ID_BYTES]
    return fields.view(">i8")[:, 0].astype(np.int64)


def note_transactions(data: Bytes, table: Table, seen: SeenTransactions) -> None:
    """Add to `seen` the transactions of batches of which those to skip are marked."""
    rows = table[table[:, kernels.ATTRIBUTES] & TRANSACTIONAL_BIT != 0]
    if not len(rows):
        return
    rows = rows[(rows[:, kernels.ACTION] != kernels.SKIP) | (rows[:, kernels.ATTRIBUTES] & CONTROL_BIT != 0)]
    are_markers = rows[:, kernels.ATTRIBUTES] & CONTROL_BIT != 0
    seen.add(producer_ids(data, rows), rows[:, kernels.BASE_OFFSET], are_markers)
    seen.aborts.extend(_aborts_in(data, rows))


def _aborts_in(data: Bytes, table: Table) -> list[tuple[int, int]]:
    """Return producer id and offset of the markers that abort transactions."""
    markers = table[table[:, kernels.ATTRIBUTES] & _MARKER_BITS == _MARKER_BITS]
    markers = markers[markers[:, kernels.RECORDS_END] - markers[:, kernels.START] >= _MARKER_SIZE]
    heads = data[markers[:, kernels.START, None] + _MARKER_BYTES]
    is_usual = (heads[:, :4] == _USUAL_MARKER).all(axis=1)
    is_abort = is_usual & (heads[:, 4:] == 0).all(axis=1)
    for row in np.flatnonzero(~is_usual).tolist():  # a cleaner has set a delete horizon
        records = read_records(data.data, int(markers[row, kernels.START]))
        found = read_marker(records[0]) if records else None
        is_abort[row] = found is not None and not found.is_commit
    aborts = markers[is_abort]
    return list(zip(producer_ids(data, aborts).tolist(), aborts[:, kernels.BASE_OFFSET].tolist(), strict=True))


def decompress_records(data: Bytes, batch: NDArray[np.int64], limit_bytes: int) -> Buffer:
    """Return the records of a batch, decompressed. batch: its row in the table of `kernels.scan_batches`

    Raises CorruptRecord, naming the batch's offset; ExceedsLimit if they take more than `limit_bytes`.
    """
    number = int(batch[kernels.ATTRIBUTES]) & CODEC_MASK
    if number > Codec.ZSTD:
        raise CorruptRecord(f"batch at offset {batch[kernels.BASE_OFFSET]}: no codec {number}")
    records = data.data[batch[kernels.RECORDS_START] : batch[kernels.RECORDS_END]]
    try:
        return decompress(Codec(number), records, limit_bytes)
    except CorruptRecord as error:
        raise type(error)(f"batch at offset {batch[kernels.BASE_OFFSET]}: {error}") from None


def _decode_group(group: _BatchGroup, request: _DecodeOptions) -> Iterator[pa.RecordBatch]:
    """Yield the group's records, in several parts if one would be too large."""
    room = _max_records(group.table)
    if room > request.most_rows:
        if len(group.table) == 1:
            raise ExceedsLimit(f"the batch at offset {group.table[0, kernels.BASE_OFFSET]} claims {room} records")
        middle = len(group.table) // 2
        for table in (group.table[:middle], group.table[middle:]):
            yield from _decode_group(
                _BatchGroup(data=group.data, decompressed=group.decompressed, table=table), request
            )
        return
    batch = _decode_columns(group, request, room)
    if batch.num_rows:
        yield batch


def _max_records(table: Table) -> int:
    """Return how many records to allocate for: the headers' counts, but no more than the bytes can hold."""
    action = table[:, kernels.ACTION]
    count = table[:, kernels.RECORD_COUNT]
    most = (table[:, kernels.RECORDS_END] - table[:, kernels.RECORDS_START]) // _SMALLEST_RECORD
    return int(np.where(action == kernels.COUNT, count, np.minimum(count, most))[action != kernels.SKIP].sum())


def _decode_columns(group: _BatchGroup, request: _DecodeOptions, room: int) -> pa.RecordBatch:
    want = request.selection.want
    fixed = FixedColumns(
        offsets=np.empty(room, np.int64),
        timestamps=np.empty(room if want & kernels.WANT_TIMESTAMP else 0, np.int64),
        timestamp_types=np.empty(room if want & kernels.WANT_TIMESTAMP_TYPE else 0, np.int32),
    )
    variable = VariableColumns(
        key=_empty_column(room if want & kernels.WANT_KEY else 0),
        value=_empty_column(room if want & kernels.WANT_VALUE else 0),
        headers=_empty_column(room if want & kernels.WANT_HEADERS else 0),
    )
    row_ends = np.empty(len(group.table), np.int64)
    totals = np.zeros(kernels.TOTALS, np.int64)
    records, row = kernels.parse_batches(
        group.data, group.decompressed, group.table, request.selection, fixed, variable, row_ends, totals
    )
    if records < 0:
        raise CorruptRecord(
            f"batch at offset {group.table[row, kernels.BASE_OFFSET]}, position {group.table[row, kernels.START]}: "
            f"{kernels.FAULTS[-records]}"
        )
    makers = {
        "offset": lambda: _fixed_array(fixed.offsets, records, pa.int64()),
        "timestamp": lambda: _fixed_array(fixed.timestamps, records, request.schema.field("timestamp").type),
        "timestampType": lambda: _fixed_array(fixed.timestamp_types, records, pa.int32()),
        "key": lambda: _value_array(group, row_ends, variable.key, records, int(totals[kernels.NULL_KEYS])),
        "value": lambda: _value_array(group, row_ends, variable.value, records, int(totals[kernels.NULL_VALUES])),
        "headers": lambda: _header_array(group, row_ends, variable.headers, records, totals, request.most_headers),
    }
    if not request.schema.names:
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), records, [None]))
    return pa.RecordBatch.from_arrays([makers[name]() for name in request.schema.names], schema=request.schema)


def _empty_column(room: int) -> VariableColumn:
    offsets = np.empty(room + 1, np.int32)
    offsets[0] = 0
    return VariableColumn(
        starts=np.empty(room, np.int64), offsets=offsets, validity=np.zeros((room + 7) // 8, np.uint8)
    )


def _fixed_array(values: NDArray[Any], records: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, records, [None, pa.py_buffer(values)], 0)


def _byte_strings(kind: pa.DataType, column: VariableColumn, data: Bytes, count: int, nulls: int) -> pa.Array:
    validity = pa.py_buffer(column.validity) if nulls else None
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(column.offsets), pa.py_buffer(data)], nulls)


def _value_array(
    group: _BatchGroup, row_ends: NDArray[np.int64], column: VariableColumn, records: int, nulls: int
) -> pa.Array:
    output = np.empty(int(column.offsets[records]), np.uint8)
    if not kernels.copy_column(group.data, group.decompressed, group.table, row_ends, column, output):
        raise CorruptRecord("the data changed while it was read")
    return _byte_strings(pa.binary(), column, output, records, nulls)


def _header_array(
    group: _BatchGroup,
    row_ends: NDArray[np.int64],
    column: VariableColumn,
    records: int,
    totals: NDArray[np.int64],
    most: int,
) -> pa.Array:
    count = int(totals[kernels.HEADERS])
    if count > most:
        raise ExceedsLimit(f"batches from offset {group.table[0, kernels.BASE_OFFSET]} on have {count} headers")
    key, value = _empty_column(count), _empty_column(count)
    keys = np.empty(int(totals[kernels.HEADER_KEY_BYTES]), np.uint8)
    values = np.empty(int(totals[kernels.HEADER_VALUE_BYTES]), np.uint8)
    nulls = kernels.copy_header_columns(
        group.data, group.decompressed, group.table, row_ends, column, key, keys, value, values
    )
    if nulls < 0:
        raise CorruptRecord("the data changed while it was read")
    key_array = _utf8_array(_byte_strings(pa.binary(), key, keys, count, 0), keys)
    value_array = _byte_strings(pa.binary(), value, values, count, nulls)
    entries = pa.StructArray.from_arrays([key_array, value_array], names=["key", "value"])
    return pa.Array.from_buffers(
        pa.list_(entries.type), records, [None, pa.py_buffer(column.offsets)], 0, children=[entries]
    )


def _utf8_array(strings: pa.Array, data: Bytes) -> pa.Array:
    """Return byte strings as text, with U+FFFD for bytes that are not UTF-8."""
    text = strings.view(pa.string())
    if not len(data) or data.max() < 128:
        return text
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in strings.to_pylist()], pa.string())
    return text
