"""Transaction markers: control batches of one record, which end a producer's transaction in a partition (KIP-98).

    key      version i16 = 0 │ type i16: 0 abort, 1 commit
    value    version i16 = 0 │ coordinator epoch i32

As org.apache.kafka.common.record.EndTransactionMarker. The coordinator epoch is the leader epoch of the partition of
`__transaction_state` whose leader wrote the marker.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from sparklog.records.records import Record, write_records

ABORT, COMMIT = 0, 1
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0


class EndTransactionMarker(NamedTuple):
    """The end of a transaction."""

    is_commit: bool
    coordinator_epoch: int


def read_marker(record: Record) -> EndTransactionMarker | None:
    """Return the marker in a control record; None for another kind of control record."""
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    kind = _KEY.unpack_from(key)[1]
    if kind not in (ABORT, COMMIT):
        return None
    return EndTransactionMarker(kind == COMMIT, _VALUE.unpack_from(value)[1])


def write_marker(
    marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytearray:
    """Return the control batch of a marker, at offset 0 and without a sequence number."""
    record = Record(
        offset=0,
        timestamp_ms=timestamp_ms,
        key=_KEY.pack(_VERSION, COMMIT if marker.is_commit else ABORT),
        value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
    )
    return write_records(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )
