"""Columnar reading of committed offsets from the records of `__consumer_offsets`.

Nearly every record of that topic is a commit and becomes one row. This module only identifies the other records (groups
and their members), which are rare and are read one by one (schemas.py).
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparklog.base.ids import encode_id
from sparklog.base.schemas import ZERO_ID, read_key, read_value
from sparklog.offsets_topic import commit_kernels as kernels
from sparklog.offsets_topic.commit_kernels import LocatedFields
from sparklog.offsets_topic.schemas import OFFSETS_TOPIC
from sparklog.records.kernels import StringColumn

_MS = pa.timestamp("ms", "UTC")
COMMITS = pa.schema(
    [
        ("log_offset", pa.int64()),
        ("log_time", _MS),
        ("group_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("deleted", pa.bool_()),  # a tombstone: the offset was deleted or expired, or its group or topic was deleted
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("commit_time", _MS),
        ("expire_time", _MS),
        ("topic_id", pa.string()),
    ]
)


class OffsetRecords(NamedTuple):
    """The records of a batch, divided by kind."""

    commits: pa.Table
    """The commits, with the schema COMMITS, in the order of the records."""
    rows: NDArray[np.int64]
    """The row numbers of the commits."""
    others: NDArray[np.int64]
    """The row numbers of the other records: groups and their members."""
    damaged: tuple[int, ...]
    """The offsets of records that cannot be read."""


def read_offset_records(records: pa.RecordBatch) -> OffsetRecords:
    """Divide records by kind, from columns offset, timestamp (ms), key (binary) and value (binary).

    Commits with invalid UTF-8, or with a layout that the kernels do not know, are read one by one.
    """
    keys, values = _strings(records.column("key")), _strings(records.column("value"))
    found = _empty(records.num_rows)
    kernels.locate_fields(keys, values, found)
    rows = np.flatnonzero(found.kinds <= kernels.TOMBSTONE)
    try:
        commits = _commits(records, found, keys, values, rows)
    except pa.ArrowInvalid:  # a text is not UTF-8: read all commits one by one
        found.kinds[rows] = kernels.GENERAL
        commits = COMMITS.empty_table()
        rows = rows[:0]
    general = np.flatnonzero(found.kinds == kernels.GENERAL)
    if len(general):
        commits = pa.concat_tables([commits, _read_generally(records, general, found.kinds)])
        rows = np.concatenate([rows, general[found.kinds[general] == kernels.GENERAL]])
        order = np.argsort(rows)
        commits, rows = commits.take(pa.array(order)), rows[order]
    offsets = records.column("offset").to_numpy()
    return OffsetRecords(
        commits,
        rows,
        np.flatnonzero(found.kinds == kernels.OTHER),
        tuple(offsets[found.kinds == kernels.DAMAGED].tolist()),
    )


def _commits(
    records: pa.RecordBatch, found: LocatedFields, keys: StringColumn, values: StringColumn, rows: NDArray[np.int64]
) -> pa.Table:
    """Return the commits in `rows` as a table. Raises ArrowInvalid if a text is not UTF-8."""
    is_tombstone = found.kinds[rows] == kernels.TOMBSTONE

    def number(which: int, kind: pa.DataType, *, null: int | None = None) -> pa.Array:
        column = found.numbers[which, rows]
        is_null = is_tombstone if null is None else is_tombstone | (column == null)
        return pa.array(column, mask=is_null).cast(kind, safe=False)

    picked = records.select(["offset", "timestamp"]).take(pa.array(rows))
    ids = _texts(found, kernels.TOPIC_ID, values.data, rows).dictionary_encode()
    names = pa.array(
        [None if each == ZERO_ID.bytes else encode_id(UUID(bytes=each)) for each in ids.dictionary.to_pylist()],
        pa.string(),
    )
    columns = [
        picked.column("offset"),
        picked.column("timestamp").cast(_MS),
        _texts(found, kernels.GROUP, keys.data, rows).cast(pa.string()),
        _texts(found, kernels.TOPIC, keys.data, rows).cast(pa.string()),
        pa.array(found.numbers[kernels.PARTITION, rows]).cast(pa.int32()),
        pa.array(is_tombstone),
        number(kernels.OFFSET, pa.int64()),
        number(kernels.LEADER_EPOCH, pa.int32(), null=-1),
        _texts(found, kernels.METADATA, values.data, rows).cast(pa.string()),
        number(kernels.COMMIT_MS, _MS),
        number(kernels.EXPIRE_MS, _MS, null=-1),
        names.take(ids.indices),
    ]
    return pa.Table.from_arrays(columns, schema=COMMITS)


def _read_generally(records: pa.RecordBatch, which: NDArray[np.int64], kinds: NDArray[np.int8]) -> pa.Table:
    """Read the rows `which`, of kind GENERAL, one by one; set the kind of unreadable ones to DAMAGED."""
    rows = []
    for at in which.tolist():
        try:
            rows.append(_read_row(*(records.column(name)[at] for name in ("offset", "timestamp", "key", "value"))))
        except (ValueError, struct.error):
            kinds[at] = kernels.DAMAGED
    return pa.Table.from_pylist(rows, COMMITS)


def _read_row(offset: pa.Scalar, time: pa.Scalar, key: pa.Scalar, value: pa.Scalar) -> dict[str, Any]:
    """Return one commit as a dict by column. Raises ValueError or struct.error."""
    kind, names = read_key(key.as_py(), OFFSETS_TOPIC)
    assert names is not None  # the kernel has found the key of a commit
    row = {"group_id": names["group"], "topic": names["topic"], "partition": names["partition"]}
    row |= {"log_offset": offset, "log_time": time, "deleted": not value.is_valid}
    if not value.is_valid:
        return row
    _, fields = read_value(value.as_py(), OFFSETS_TOPIC[kind][1])
    topic_id, epoch, expires = (fields.get(name) for name in ("topicId", "leaderEpoch", "expireTimestamp"))
    return row | {
        "offset": fields["offset"],
        "leader_epoch": None if epoch == -1 else epoch,
        "metadata": fields["metadata"],
        "commit_time": pa.scalar(fields["commitTimestamp"], _MS),
        "expire_time": None if expires in (None, -1) else pa.scalar(expires, _MS),
        "topic_id": encode_id(topic_id) if topic_id else None,
    }


def _strings(column: pa.Array) -> StringColumn:
    """Return the column's buffers. Raises ArrowInvalid if its offsets go beyond its data."""
    column.validate(full=True)
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    sizes = np.diff(offsets)
    if column.null_count:
        sizes[pc.is_null(column).to_numpy(zero_copy_only=False)] = -1
    data = column.buffers()[2]
    return StringColumn(offsets[:-1], sizes, np.frombuffer(data or b"", np.uint8))


def _empty(rows: int) -> LocatedFields:
    return LocatedFields(
        kinds=np.zeros(rows, np.int8),
        numbers=np.zeros((kernels.NUMBERS, rows), np.int64),
        starts=np.zeros((kernels.TEXTS, rows), np.int64),
        sizes=np.full((kernels.TEXTS, rows), -1, np.int32),
    )


def _texts(found: LocatedFields, which: int, data: NDArray[np.uint8], rows: NDArray[np.int64]) -> pa.Array:
    """Return a binary column of the texts located in `found`."""
    starts, sizes = found.starts[which, rows], found.sizes[which, rows]
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
    output = np.empty(int(offsets[-1]), np.uint8)
    if not kernels.gather(data, starts, sizes, offsets, output):
        raise AssertionError("texts are not where they were noted")
    validity = pa.array(sizes >= 0).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(rows), [validity, pa.py_buffer(offsets), pa.py_buffer(output)])
