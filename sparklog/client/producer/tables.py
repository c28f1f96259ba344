"""Conversion of Arrow tables into batches, column by column.

checked_table    the table with the types that are written, and a timestamp for every row
pieces           slices that are converted one by one, so that a large table does not need twice its memory
batches_of       a slice split by partition, rows in order, and cut to the size of a batch
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.base.errors import InvalidRecord, MessageTooLarge
from sparklog.base.ids import TopicPartition
from sparklog.client.config import ProducerConfig
from sparklog.client.producer.accumulator import TopicQueues
from sparklog.client.producer.batches import HEADER_OVERHEAD, RECORD_OVERHEAD, TIMESTAMP, TableBatch
from sparklog.client.producer.partitioner import STICKY, partition_keys
from sparklog.records.arrow import HEADERS_TYPE
from sparklog.records.batch import HEADER_SIZE

PIECE_BYTES = 4 << 20
_TYPES = {"key": pa.binary(), "value": pa.binary(), "headers": HEADERS_TYPE, "timestamp": TIMESTAMP}

Sizes = npt.NDArray[np.int64]


def checked_table(table: Any, now_ms: int) -> Any:
    """Return the table with the columns and types that are written, and `now_ms` for missing timestamps.

    Raises InvalidRecord for an object that is no table or record batch, for a column that is unknown, present twice or
    impossible to cast, and if there is neither key nor value.
    """
    rows = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    if not isinstance(rows, pa.Table):
        raise InvalidRecord(f"a {type(table).__name__}: send_table takes a pyarrow Table or RecordBatch")
    names = rows.column_names
    if len(set(names)) < len(names) or not set(names) <= _TYPES.keys() or not {"key", "value"} & set(names):
        raise InvalidRecord(f"columns {', '.join(names)}: wanted are key, value, headers, timestamp, each at most once")
    columns = {name: _cast(name, rows.column(name)) for name in names}
    timestamps = columns.get("timestamp")
    if timestamps is None or timestamps.null_count:
        now = pa.scalar(now_ms, pa.int64()).cast(TIMESTAMP)
        filled = pa.repeat(now, rows.num_rows) if timestamps is None else pc.fill_null(timestamps, now)
        columns["timestamp"] = filled
    return pa.table(columns)


def _cast(name: str, column: Any) -> Any:
    try:
        return column.cast(_TYPES[name], safe=name != "timestamp")  # timestamps finer than ms are truncated
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRecord(f"column {name} of type {column.type} cannot be cast to {_TYPES[name]}: {error}") from None


def pieces(rows: Any, topic: TopicQueues, config: ProducerConfig) -> Iterator[Any]:
    """Yield slices of the table as record batches, if memory allows with a full batch for every partition."""
    wanted = max(PIECE_BYTES, len(topic.leaders) * topic.batch_limit)
    piece_bytes = max(min(wanted, config.buffer_memory // 2), 1)
    step = max(piece_bytes * rows.num_rows // max(rows.nbytes + RECORD_OVERHEAD * rows.num_rows, 1), 1)
    for start in range(0, rows.num_rows, step):
        yield from rows.slice(start, step).combine_chunks().to_batches()


def batches_of(
    piece: Any, topic: TopicQueues, config: ProducerConfig, *, partition: int | None, random: Random, now_ms: int
) -> list[TableBatch]:
    """Return the rows of a piece as batches of their partitions.

    Raises MessageTooLarge for a row over the limits, and exceptions of the partitioner.
    """
    sizes = row_sizes(piece)
    if sizes.max() > min(config.max_request_size, config.buffer_memory):
        raise MessageTooLarge(f"a row of {sizes.max()} bytes: max_request_size is {config.max_request_size}")
    count = len(topic.leaders)
    if partition is not None:
        numbers = np.full(piece.num_rows, partition, np.int32)
    else:
        keys = piece.column("key") if "key" in piece.schema.names else None
        numbers = partition_keys(topic.name, keys, piece.num_rows, count, config.partitioner)
        _place_sticky(numbers, sizes, topic, random)
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(count + 1))
    batches = []
    for number in np.flatnonzero(np.diff(starts)):
        chosen = order[starts[number] : starts[number + 1]]
        rows = piece if len(chosen) == piece.num_rows else piece.take(pa.array(chosen))
        place = TopicPartition(topic.name, int(number))
        for start, stop, size in _cuts(sizes[chosen], topic.batch_limit):
            batches.append(TableBatch(place, now_ms, rows.slice(start, stop - start), size))
    return batches


def row_sizes(piece: Any) -> Sizes:
    """Return the most bytes that each row can take in a batch, before compression."""
    sizes = np.full(piece.num_rows, RECORD_OVERHEAD, np.int64)
    for name in {"key", "value"} & set(piece.schema.names):
        sizes += pc.fill_null(pc.binary_length(piece.column(name)), 0).to_numpy(zero_copy_only=False)
    if "headers" in piece.schema.names and len(piece):
        headers = piece.column("headers")
        entries = headers.flatten()
        rows = pc.list_parent_indices(headers).to_numpy()
        lengths = np.full(len(entries), HEADER_OVERHEAD, np.int64)
        for part in entries.flatten():
            lengths += pc.fill_null(pc.binary_length(part), 0).to_numpy(zero_copy_only=False)
        np.add.at(sizes, rows, lengths)
    return sizes


def _place_sticky(numbers: npt.NDArray[np.int32], sizes: Sizes, topic: TopicQueues, random: Random) -> None:
    """Assign rows without partition to sticky partitions, in runs of the size of a batch."""
    rows = np.flatnonzero(numbers == STICKY)
    for start, stop, _ in _cuts(sizes[rows], topic.batch_limit):
        numbers[rows[start:stop]] = topic.sticky
        topic.choose_sticky(random)


def _cuts(sizes: Sizes, limit: int) -> Iterator[tuple[int, int, int]]:
    """Yield start, stop and size of the batches; each stays within `limit` bytes or has one row."""
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(sizes):
        stop = max(int(np.searchsorted(ends, before + limit - HEADER_SIZE, side="right")), start + 1)
        yield start, stop, HEADER_SIZE + int(ends[stop - 1]) - before
        start, before = stop, int(ends[stop - 1])
