"""Counts by their headers the records that `decoding.decode_batches` would return.

A batch's header has the number of its records, even if compaction left gaps. A batch is opened only if it has gaps and
lies partly outside the requested offsets, or if its format is v0 or v1. The CRCs of other batches are not checked.
"""

from __future__ import annotations

import numpy as np

from sparklog.base.fs import Buffer
from sparklog.records import decode_kernels as kernels
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges, SeenTransactions
from sparklog.records.decoding import (
    Bytes,
    Table,
    as_bytes,
    decode_batches,
    note_transactions,
    refuse,
    skip_aborted,
    skip_others,
)
from sparklog.records.kernels import MAX_LONG

_TABLE_ROWS = 16 * 1024


def count_records(
    data: Buffer,
    *,
    offset_from: int = 0,
    offset_to: int = MAX_LONG,
    aborted: AbortedRanges = NONE_ABORTED,
    seen: SeenTransactions | None = None,
) -> int:
    """Return how many records of `data` have offsets in [offset_from, offset_to), without those of `aborted`.

    `seen` gets the transactions of the batches. A last batch that is cut off is ignored. Raises CorruptRecord for an
    invalid header, and for an invalid batch that is opened.
    """
    array = as_bytes(data)
    position = count = 0
    stopped = kernels.TABLE_FULL
    while stopped == kernels.TABLE_FULL:
        table = np.empty((min(len(array) // 61 + 1, _TABLE_ROWS), kernels.TABLE_COLUMNS), np.int64)
        rows, position, stopped = kernels.scan_batches(array, position, len(array), table)
        table = table[:rows]
        skip_others(table, offset_from, offset_to)
        if len(aborted):
            skip_aborted(array, table, aborted)
        if seen is not None:
            note_transactions(array, table, seen)
        count += _count(array, table[table[:, kernels.ACTION] != kernels.SKIP], offset_from, offset_to)
    if stopped == kernels.OLD_FORMAT:
        rest = decode_batches(
            memoryview(data)[position:],
            columns=("offset",), offset_from=offset_from, offset_to=offset_to, aborted=aborted, seen=seen,
        )  # fmt: skip
        count += sum(int(batch.num_rows) for batch in rest)
    elif stopped != kernels.END_OF_DATA:
        refuse(array, position, stopped)
    return count


def _count(data: Bytes, table: Table, offset_from: int, offset_to: int) -> int:
    """Return how many records of the table's batches have requested offsets."""
    base, records = table[:, kernels.BASE_OFFSET], table[:, kernels.RECORD_COUNT]
    end = base + table[:, kernels.LAST_OFFSET_DELTA] + 1
    is_inside = (base >= offset_from) & (end <= offset_to)
    count = int(records[is_inside].sum())
    for row in np.flatnonzero(~is_inside).tolist():
        if records[row] == end[row] - base[row]:  # one record at each offset
            count += int(min(end[row], offset_to) - max(base[row], offset_from))
            continue
        batch = data[table[row, kernels.START] : table[row, kernels.RECORDS_END]]
        opened = decode_batches(batch.data, columns=("offset",), offset_from=offset_from, offset_to=offset_to)
        count += sum(each.num_rows for each in opened)
    return count
