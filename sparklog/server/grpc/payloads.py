"""Conversion between batches and the other formats that gRPC clients may use: plain records and Arrow IPC.

    produce    plain records or Arrow  →  an Arrow table  →  its rows by partition  →  batches
    fetch      batches                 →  Arrow columns   →  plain records or Arrow IPC

Conversions work column by column; only protobuf records are built and read one by one. The import of this module is
slow (half a second for Arrow and the compiled kernels), so a broker imports it for the first such payload. The
functions block; run them in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.base.errors import InvalidRecord, KafkaError, RecordListTooLarge
from sparklog.base.fs import Buffer
from sparklog.base.murmur2_column import partition_column
from sparklog.records import arrow
from sparklog.records.aborted import AbortedRanges
from sparklog.records.batch import Codec
from sparklog.records.compression import ExceedsLimit
from sparklog.records.recompression import Compression
from sparklog.runtime.slices import of_many
from sparklog.server.grpc import record_codec
from sparklog.server.grpc.arrow_ipc import refuse_compressed
from sparklog.v1 import log_pb2, records_pb2

RECORD_OVERHEAD, HEADER_OVERHEAD = 48, 16
"""Bytes of a record's or header's message besides keys and values: numbers, tags and lengths."""
MAX_DECODED_BYTES = 16 << 20
"""Maximum bytes of one decoded batch. Decoding takes up to five times the memory."""
ROWS_TOGETHER = 10_000
"""Number of records that are Python objects at once, each of hundreds of bytes."""
PRODUCED = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", arrow.HEADERS_TYPE),
        ("timestamp", pa.timestamp("ms", "UTC")),
    ]
)


def encode_payload(
    part: log_pb2.PartitionProduce,
    arrow: Buffer,
    *,
    partitions: int,
    without_key: int,
    now_ms: int,
    max_batch_bytes: int,
    compression: Compression | None = None,
) -> list[tuple[int, bytearray]]:
    """Encode the records of one PartitionProduce as batches; return (partition, batches) pairs.

    arrow: the content of its `arrow`, if it has no `records`. Records without a key go to the partition `without_key`.
    compression: the topic's codec; None: the codec of the request. Raises InvalidRecord if
    the payload is invalid.
    """
    codec, level = compression or (part.codec, None)
    plain = part.WhichOneof("payload") == "records"
    table = table_of_records(part.records.records) if plain else table_of_arrow(arrow)
    if part.HasField("partition"):
        pieces: Iterable[tuple[int, pa.Table]] = [(part.partition, table)]
    else:
        pieces = split_by_key(table, partitions, without_key)
    return [
        (partition, encode(rows, codec=codec, level=level, now_ms=now_ms, max_batch_bytes=max_batch_bytes))
        for partition, rows in pieces
    ]


def table_of_records(records: Sequence[records_pb2.Record]) -> pa.Table:
    """Return plain records as columns (`PRODUCED`). Raises InvalidRecord if there are none."""
    if not records:
        raise InvalidRecord("the request has no records")
    return pa.concat_tables(_columns(some) for some in of_many(records, ROWS_TOGETHER))


def table_of_arrow(data: Buffer) -> pa.Table:
    """Return the rows of an Arrow IPC stream.

    Raises InvalidRecord if the bytes are not such a stream, if it has no rows, if its columns are not those of records,
    or if it could take more memory than its own size: compressed, or with a type whose rows may share bytes
    (dictionaries, views, run ends).
    """
    try:
        refuse_compressed(data)
        with pa.ipc.open_stream(data) as reader:
            _check_columns(reader.schema)
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRecord(f"not an Arrow IPC stream: {error}") from None
    if table.num_rows == 0:
        raise InvalidRecord("the Arrow table has no rows")
    return table


def split_by_key(table: pa.Table, partitions: int, without_key: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield each partition that gets rows, with its rows in order. Rows without a key go to `without_key`."""
    if "key" not in table.column_names or partitions == 1:
        yield without_key if partitions > 1 else 0, table
        return
    keys = table["key"].cast(pa.large_binary()).combine_chunks()
    keys = keys.chunk(0) if isinstance(keys, pa.ChunkedArray) else keys
    chosen = _partitions_of(keys, partitions)
    chosen[keys.is_null().to_numpy(zero_copy_only=False)] = without_key
    for partition in np.unique(chosen).tolist():
        yield partition, table.take(pa.array(np.flatnonzero(chosen == partition)))


def encode(table: pa.Table, *, codec: int, level: int | None = None, now_ms: int, max_batch_bytes: int) -> bytearray:
    """Return `table` as concatenated record batches of at most `max_batch_bytes` each, unless one record is larger.

    Raises InvalidRecord if a column has the wrong type or the codec does not exist.
    """
    try:
        batches = record_codec.encode_all(
            table, codec=Codec(codec), level=level, default_timestamp_ms=now_ms, max_batch_bytes=max_batch_bytes
        )
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidRecord(str(error)) from None
    return bytearray().join(batches)


class DecodedPayload(NamedTuple):
    """A part of the fetched records in the requested format, and the offset after it."""

    payload: bytes
    next_offset: int


def decode_some(
    decode: Callable[[Buffer, int, int, AbortedRanges], Iterator[DecodedPayload]],
    data: Buffer,
    offset_from: int,
    max_bytes: int,
    together: int,
    aborted: AbortedRanges,
) -> tuple[list[DecodedPayload], bool]:
    """Return payloads of `together` bytes, at least one, and whether there may be more from the last offset on.

    The decoded batch is freed while the client reads. aborted: transactions to skip.
    """
    found: list[DecodedPayload] = []
    size = 0
    try:
        for each in decode(data, offset_from, max_bytes, aborted):
            found.append(each)
            size += len(each.payload) + RECORD_OVERHEAD
            if size >= together:
                return found, True
    except KafkaError:
        if not found:
            raise
        return found, True  # the next call raises it
    return found, False


def decode_to_arrow(data: Buffer, offset_from: int, max_bytes: int, aborted: AbortedRanges) -> Iterator[DecodedPayload]:
    """Yield the records of whole batches from `offset_from` on, as Arrow IPC streams of about `max_bytes` at most."""
    for batch in _pieces(data, offset_from, max_bytes, aborted):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield DecodedPayload(sink.getvalue().to_pybytes(), batch.column("offset")[-1].as_py() + 1)


def decode_to_records(
    data: Buffer, offset_from: int, max_bytes: int, aborted: AbortedRanges
) -> Iterator[DecodedPayload]:
    """Yield the records of whole batches from `offset_from` on, as RecordLists of at most `max_bytes`."""
    for batch in _pieces(data, offset_from, max_bytes, aborted):
        # Concatenated RecordLists are one RecordList with all records.
        lists = [
            records_pb2.RecordList(records=map(_record, _rows(batch.slice(at, ROWS_TOGETHER)))).SerializeToString()
            for at in range(0, batch.num_rows, ROWS_TOGETHER)
        ]
        yield DecodedPayload(b"".join(lists), batch.column("offset")[-1].as_py() + 1)


def _pieces(data: Buffer, offset_from: int, max_bytes: int, aborted: AbortedRanges) -> Iterator[pa.RecordBatch]:
    """Yield runs of records that take at most `max_bytes` as messages, or one record that is larger."""
    try:
        for batch in record_codec.decode_batches(
            data, offset_from=offset_from, limit_bytes=MAX_DECODED_BYTES, aborted=aborted
        ):
            ends = np.cumsum(_sizes(batch))
            begin = 0
            while begin < batch.num_rows:
                before = int(ends[begin - 1]) if begin else 0
                end = max(begin + 1, int(np.searchsorted(ends, before + max_bytes, side="right")))
                yield batch.slice(begin, end - begin)
                begin = end
    except ExceedsLimit as error:
        raise RecordListTooLarge(
            f"{error}: the batch decodes to more than {MAX_DECODED_BYTES} bytes; fetch batches as bytes, in the format "
            "BATCHES, and decode them in the client"
        ) from None


def _sizes(batch: pa.RecordBatch) -> Any:
    """Return an upper bound of each record's size as a message, in bytes."""
    sizes = np.full(batch.num_rows, RECORD_OVERHEAD, dtype=np.int64)
    for name in ("key", "value"):
        sizes += pc.binary_length(batch.column(name)).fill_null(0).to_numpy(zero_copy_only=False)
    headers = batch.column("headers")
    counts = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False)
    if counts.any():
        flat = headers.flatten()
        lengths = HEADER_OVERHEAD + sum(
            pc.binary_length(flat.field(name)).fill_null(0).to_numpy(zero_copy_only=False) for name in ("key", "value")
        )
        ends = np.concatenate([[0], np.cumsum(lengths)])
        behind = np.cumsum(counts)
        sizes += ends[behind] - ends[behind - counts]
    return sizes


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    timestamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    columns = [batch.column(name).to_pylist() for name in ("offset", "timestampType", "key", "value", "headers")]
    return zip(timestamps, *columns, strict=True)


def _record(row: tuple[Any, ...]) -> records_pb2.Record:
    timestamp_ms, offset, timestamp_type, key, value, headers = row
    return records_pb2.Record(
        key=key,
        value=value,
        headers=[records_pb2.Header(key=header["key"], value=header["value"]) for header in headers or ()],
        timestamp_ms=timestamp_ms,
        offset=offset,
        timestamp_type=timestamp_type,
    )


def _columns(records: Sequence[records_pb2.Record]) -> pa.Table:
    columns = {
        "key": [record.key if record.HasField("key") else None for record in records],
        "value": [record.value if record.HasField("value") else None for record in records],
        "headers": [_headers(record) for record in records],
        "timestamp": [record.timestamp_ms if record.HasField("timestamp_ms") else None for record in records],
    }
    return pa.table(columns, schema=PRODUCED)


def _headers(record: records_pb2.Record) -> list[dict[str, Any]]:
    return [
        {"key": header.key, "value": header.value if header.HasField("value") else None} for header in record.headers
    ]


def _partitions_of(keys: Any, partitions: int) -> Any:
    """Return the partition of each key, null keys included, from the buffers of a large_binary array."""
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64)[keys.offset : keys.offset + len(keys) + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data else np.empty(0, dtype=np.uint8)
    return partition_column(starts, content, partitions)


def _check_columns(schema: pa.Schema) -> None:
    names = schema.names
    if len(set(names)) < len(names) or not set(names) <= _TYPES.keys() or not {"key", "value"} & set(names):
        raise InvalidRecord(f"columns {', '.join(names)}: wanted are key, value, headers, timestamp, each at most once")
    for field in schema:
        if not _TYPES[field.name](field.type):
            raise InvalidRecord(f"column {field.name} has the type {field.type}, which it cannot have")


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())


def _is_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return fields.keys() == {"key", "value"} and all(map(_is_bytes, fields.values()))


def _is_timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or kind == pa.int64())


_TYPES = {"key": _is_bytes, "value": _is_bytes, "headers": _is_headers, "timestamp": _is_timestamp}
