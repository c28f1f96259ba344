"""Rewrites record batches to the records that compaction keeps (MemoryRecords.filterTo, KIP-534).

For each batch, the first case that applies:

    nothing is kept       it is removed; or, if it must stay, only its header stays: without records and codec; with
                          its producer fields, offsets and greatest timestamp (DefaultRecordBatch.writeEmptyHeader)
    tombstones are kept,  and the batch has no delete horizon yet: it gets one, now + delete.retention.ms. The delete
    or a bare marker      horizon replaces its base timestamp, so its timestamp deltas are rewritten
    everything is kept    its bytes stay unchanged
    else                  a batch of the kept records, with the same base offset, last offset, leader epoch, producer
                          fields, codec and timestamp type; the base timestamp is that of the first kept record, unless
                          there is a delete horizon; the greatest timestamp is that of the kept records

Once a batch's delete horizon has passed, its tombstones are never kept. Two kinds of batches must stay, if only as
headers: the last batch of a producer (`keep_empty`), whose sequence numbers identify duplicates, and the batch that
ends the range (`last_offset`), because the segment itself must show the offsets that it covers.

Records of aborted transactions are not kept. A marker stays as long as any batch of its transaction is in the log, if
only as a header. A bare marker, with no such batch left before this pass, gets a delete horizon, and is removed once
that has passed (CleanedTransactionMetadata). Other control batches stay.

Rewriting the output again with the same offsets, before the next delete horizon, leaves it unchanged, if the
transactions are surveyed again: the marker of an aborted transaction becomes bare once its last batch is removed.

Message sets of formats v0 and v1 are converted; tombstones in them get a delete horizon like others.

Memory, besides a chunk and its output: a batch may decompress to `limit_bytes`, and several together to
decoding.GROUP_BYTES. Python code runs per batch, not per record; batches without a kept record are not decompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

import numpy as np
from crc32c import crc32c
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import Buffer
from sparklog.records import decode_kernels as batches
from sparklog.records import rewriting_kernels as kernels
from sparklog.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    Codec,
    seal,
)
from sparklog.records.compression import LIMIT_BYTES, compress
from sparklog.records.decoding import (
    GROUP_BYTES,
    Bytes,
    Table,
    as_bytes,
    check_crcs,
    decompress_records,
    producer_ids,
    refuse,
)
from sparklog.records.kernels import MAX_LONG
from sparklog.records.legacy import convert_messages
from sparklog.records.transaction_survey import NO_TRANSACTIONS, EndedTransactions

NEVER = -(2**63)
"""A time before every delete horizon, in ms."""
_TABLE_ROWS = 16 * 1024
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_ATTRIBUTES_OF_MESSAGE_AT = 17
_BITS_OF_EMPTY = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
Longs = NDArray[np.int64]


class RewriteSummary(Struct, frozen=True, kw_only=True):
    """Counts and checksum of the batches rewritten so far."""

    batches_read: int = 0
    batches_rewritten: int = 0
    """Batches that were changed, emptied or removed."""
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    crc32c: int = 0
    """CRC-32C of the bytes written."""
    next_delete_horizon_ms: int | None = None
    """Earliest delete horizon of batches that may hold tombstones; None: there is none."""

    @property
    def is_changed(self) -> bool:
        """Whether the output differs from the input."""
        return self.batches_rewritten > 0


class Rewriter:
    """Rewrites the batches of one range of a log, chunk after chunk."""

    def __init__(
        self,
        *,
        now_ms: int,
        delete_retention_ms: int,
        keep_empty: Collection[int] = (),
        last_offset: int | None = None,
        transactions: EndedTransactions = NO_TRANSACTIONS,
        expired_ms: int | None = None,
        limit_bytes: int = LIMIT_BYTES,
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        """Prepare to rewrite one range.

        `keep_empty`: base offsets of batches that must stay, if only as headers; `last_offset`: the batch that ends
        there must stay too; `transactions`: those of the log from its start to the end of this range, or further;
        `expired_ms`: delete horizons up to this time have passed (NEVER: none; default: `now_ms`).
        """
        self._expired_ms = now_ms if expired_ms is None else expired_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, MAX_LONG)
        self._keep_empty = np.array(sorted(keep_empty), np.int64)
        self._last_offset = last_offset
        self._transactions = transactions
        self._limit_bytes = limit_bytes
        self._group_bytes = group_bytes
        self.result = RewriteSummary()

    def rewrite(self, chunk: Buffer, kept_offsets: Longs) -> bytes:
        """Return the rewritten batches of a chunk of whole batches.

        `kept_offsets`, sorted, are the offsets to keep; they may include offsets outside the chunk, and of aborted
        transactions, but need not include markers. Raises CorruptRecord for an invalid or cut-off batch.
        """
        kept = np.ascontiguousarray(kept_offsets, np.int64).view()
        kept.flags.writeable = False
        output = b"".join(self._rewrite_parts(as_bytes(chunk), kept))
        self.result = replace(
            self.result,
            bytes_read=self.result.bytes_read + len(chunk),
            bytes_written=self.result.bytes_written + len(output),
            crc32c=crc32c(output, self.result.crc32c),
        )
        return output

    def _rewrite_parts(self, data: Bytes, kept: Longs) -> Iterator[Buffer]:
        position = 0
        while position < len(data):
            table = np.empty((min(len(data) // HEADER_SIZE + 1, _TABLE_ROWS), batches.TABLE_COLUMNS), np.int64)
            rows, position, stopped = batches.scan_batches(data, position, self._group_bytes, table)
            yield from self._groups(data, table[:rows], kept)
            if stopped == batches.OLD_FORMAT:
                converted, after = self._convert(data, position)
                yield from self._rewrite_parts(as_bytes(converted), kept)
                self.result = replace(self.result, batches_rewritten=self.result.batches_rewritten + 1)
                stopped = batches.END_OF_DATA if after == position else stopped
                position = after
            if stopped == batches.END_OF_DATA and position < len(data):
                raise CorruptRecord(f"the batch at position {position} is cut off")
            if stopped in {batches.BAD_LENGTH, batches.BAD_MAGIC, batches.BAD_COUNTS}:
                refuse(data, position, stopped)

    def _convert(self, data: Bytes, position: int) -> tuple[bytearray, int]:
        """Convert messages of format v0 or v1 to batches with the codec of the first message."""
        number = int(data[position + _ATTRIBUTES_OF_MESSAGE_AT]) & CODEC_MASK
        codec = Codec(number) if number <= Codec.LZ4 else Codec.NONE
        return convert_messages(
            data.data, position, codec=codec, max_bytes=self._group_bytes, limit_bytes=self._limit_bytes
        )

    def _groups(self, data: Bytes, table: Table, kept: Longs) -> Iterator[Buffer]:
        """Rewrite the table's batches, decompressing as many at a time as fit in a group."""
        check_crcs(data, table)
        if (table[:, batches.ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT)).any():
            kept = _with_markers(table, kept)
            found = self._look_up(table, kept)
            self._look_up_transactions(data, table)
        else:
            found = self._look_up(table, kept)
        to_open = (table[:, batches.ACTION] == batches.READ) & (table[:, batches.ATTRIBUTES] & CODEC_MASK != 0)
        first = size = 0
        contents: list[Buffer] = []
        for row in np.flatnonzero(to_open).tolist():
            content = decompress_records(data, table[row], self._limit_bytes)
            if contents and size + len(content) > self._group_bytes:
                yield from self._rewrite_group(data, contents, table[first:row], kept, found[first:row])
                first, size, contents = row, 0, []
            contents.append(content)
            table[row, batches.RECORDS_START] = size
            size += len(content)
            table[row, batches.RECORDS_END] = size
            table[row, batches.ACTION] = batches.READ_DECOMPRESSED
        yield from self._rewrite_group(data, contents, table[first:], kept, found[first:])

    def _look_up(self, table: Table, kept: Longs) -> Table:
        """Return the place in `kept` of each batch's first offset, and set the actions of batches that are not read.

        SKIP if nothing is kept, COUNT if everything is kept and the delete horizon is in the future.
        """
        found = np.zeros((len(table), kernels.FOUND_COLUMNS), np.int64)
        base, count = table[:, batches.BASE_OFFSET], table[:, batches.RECORD_COUNT]
        begin = np.searchsorted(kept, base)
        kept_in_batch = np.searchsorted(kept, base + table[:, batches.LAST_OFFSET_DELTA], "right") - begin
        found[:, kernels.FROM] = begin
        found[:, kernels.END] = table[:, batches.RECORDS_END]
        ahead = _has_horizon(table) & (table[:, batches.BASE_TIMESTAMP] > self._expired_ms)
        table[ahead & (kept_in_batch == count), batches.ACTION] = batches.COUNT
        table[(kept_in_batch == 0) | (count == 0), batches.ACTION] = batches.SKIP
        return found

    def _look_up_transactions(self, data: Bytes, table: Table) -> None:
        """Set the actions that depend on transactions. Markers that get a delete horizon must be read."""
        bits, has_records = table[:, batches.ATTRIBUTES], table[:, batches.RECORD_COUNT] > 0
        rows = np.flatnonzero(bits & (TRANSACTIONAL_BIT | CONTROL_BIT) == TRANSACTIONAL_BIT)
        is_aborted = self._transactions.aborted.contain(
            producer_ids(data, table[rows]), table[rows, batches.BASE_OFFSET]
        )
        table[rows[is_aborted], batches.ACTION] = batches.SKIP
        is_bare, has_horizon = self._is_bare(table), _has_horizon(table)
        has_expired = has_horizon & (table[:, batches.BASE_TIMESTAMP] <= self._expired_ms)
        stays = (bits & CONTROL_BIT != 0) & has_records & ~is_bare
        table[stays | (is_bare & has_horizon), batches.ACTION] = batches.COUNT
        table[is_bare & has_expired, batches.ACTION] = batches.SKIP

    def _is_bare(self, table: Table) -> NDArray[np.bool_]:
        """Return which batches are markers of transactions that have no batch left."""
        rows = np.flatnonzero(table[:, batches.ATTRIBUTES] & CONTROL_BIT)
        offsets, bare = table[rows, batches.BASE_OFFSET], self._transactions.bare_markers
        found = np.zeros(len(table), np.bool_)
        found[rows] = np.searchsorted(bare, offsets, "right") > np.searchsorted(bare, offsets)
        return found

    def _rewrite_group(
        self, data: Bytes, contents: list[Buffer], table: Table, kept: Longs, found: Table
    ) -> Iterator[Buffer]:
        decompressed = as_bytes(contents[0] if len(contents) == 1 else b"".join(contents))
        fault, row = kernels.survey(data, decompressed, table, kept, self._expired_ms, found)
        if fault < 0:
            raise CorruptRecord(f"batch at offset {table[row, batches.BASE_OFFSET]}: {batches.FAULTS[-fault]}")
        as_it_is, changed = self._choose_rewrites(table, found)
        rows = np.flatnonzero(changed)
        output = np.empty(_max_output_bytes(table[rows], found[rows]), np.uint8)
        if not kernels.write_batches(data, decompressed, table, rows, kept, self._expired_ms, found, output):
            raise CorruptRecord("the data changed while it was read")
        starts, ends = table[:, batches.START].tolist(), found[:, kernels.END].tolist()
        for row in np.flatnonzero(as_it_is | changed).tolist():
            yield data.data[starts[row] : ends[row]] if as_it_is[row] else _compress_and_seal(output.data, found[row])

    def _choose_rewrites(self, table: Table, found: Table) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which batches stay unchanged and which are rewritten; set the new header fields in `found`."""
        base, count = table[:, batches.BASE_OFFSET], table[:, batches.RECORD_COUNT]
        kept, whole = found[:, kernels.KEPT], table[:, batches.ACTION] == batches.COUNT
        empty = (kept == 0) & ~whole
        stays = ~empty | np.isin(base, self._keep_empty)
        if self._last_offset is not None:
            stays |= base + table[:, batches.LAST_OFFSET_DELTA] == self._last_offset
        has_horizon = _has_horizon(table)
        needs_horizon = (found[:, kernels.TOMBSTONES] > 0) | (self._is_bare(table) & ~empty)
        gets_horizon = needs_horizon & ~has_horizon
        as_it_is = stays & (whole | (kept == count)) & ~gets_horizon
        attributes, append_time = table[:, batches.ATTRIBUTES], table[:, batches.ATTRIBUTES] & LOG_APPEND_TIME_BIT
        found[:, kernels.NEW_ATTRIBUTES] = np.where(
            empty, attributes & _BITS_OF_EMPTY, attributes | np.where(gets_horizon, DELETE_HORIZON_BIT, 0)
        )
        found[:, kernels.NEW_BASE_TIMESTAMP] = np.select(
            [empty, gets_horizon, has_horizon],
            [NO_TIMESTAMP, self._horizon_ms, table[:, batches.BASE_TIMESTAMP]],
            found[:, kernels.FIRST_TIMESTAMP],
        )
        found[:, kernels.NEW_MAX_TIMESTAMP] = np.where(
            empty | (append_time != 0), table[:, batches.MAX_TIMESTAMP], found[:, kernels.GREATEST_TIMESTAMP]
        )
        horizons = np.where(gets_horizon, self._horizon_ms, table[:, batches.BASE_TIMESTAMP])
        self._add_up(table, found, as_it_is, horizons[needs_horizon | (whole & has_horizon)])
        return as_it_is, stays & ~as_it_is

    def _add_up(self, table: Table, found: Table, as_it_is: NDArray[np.bool_], horizons: Longs) -> None:
        before, count = self.result, table[:, batches.RECORD_COUNT]
        kept = np.where(table[:, batches.ACTION] == batches.COUNT, count, found[:, kernels.KEPT])
        known = [] if before.next_delete_horizon_ms is None else [before.next_delete_horizon_ms]
        self.result = replace(
            before,
            batches_read=before.batches_read + len(table),
            batches_rewritten=before.batches_rewritten + len(table) - int(as_it_is.sum()),
            records_read=before.records_read + int(count.sum()),
            records_kept=before.records_kept + int(kept.sum()),
            next_delete_horizon_ms=min([*known, *horizons.tolist()], default=None),
        )


def _has_horizon(table: Table) -> NDArray[np.bool_]:
    return (table[:, batches.ATTRIBUTES] & DELETE_HORIZON_BIT).astype(np.bool_)


def _with_markers(table: Table, kept: Longs) -> Longs:
    """Return the kept offsets of the table's range, with those of control batches, which have no keys."""
    first, last = table[0, batches.BASE_OFFSET], table[-1, batches.BASE_OFFSET] + table[-1, batches.LAST_OFFSET_DELTA]
    low, high = np.searchsorted(kept, first), np.searchsorted(kept, last, "right")
    is_control = table[:, batches.ATTRIBUTES] & CONTROL_BIT != 0
    with_markers = np.union1d(kept[low:high], table[is_control, batches.BASE_OFFSET])
    with_markers.setflags(write=False)
    return with_markers


def _max_output_bytes(table: Table, found: Table) -> int:
    """Return the maximum size in bytes of the rewritten batches before compression."""
    records = table[:, batches.RECORDS_END] - table[:, batches.RECORDS_START] + kernels.GROWTH * found[:, kernels.KEPT]
    with_records = np.where(found[:, kernels.KEPT] > 0, records, 0)
    return int(with_records.sum()) + HEADER_SIZE * len(table) + kernels.ROOM_FOR_NUMBERS


def _compress_and_seal(output: memoryview, found: Longs) -> Buffer:
    """Return a rewritten batch, compressed with its codec and sealed."""
    start, end = int(found[kernels.NEW_START]), int(found[kernels.NEW_END])
    codec = Codec(int(found[kernels.NEW_ATTRIBUTES]) & CODEC_MASK)
    if codec is Codec.NONE:
        seal(output, start)
        return output[start:end]
    batch = bytearray(output[start : start + HEADER_SIZE])
    batch += compress(codec, output[start + HEADER_SIZE : end])
    _LENGTH.pack_into(batch, _LENGTH_AT, len(batch) - LOG_OVERHEAD)
    seal(batch)
    return batch
