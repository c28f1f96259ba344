"""Transactions in a log, one step at a time."""

from __future__ import annotations

from sparklog.log.log import Log, LogAppendInfo
from sparklog.log.producers.verifications import UNVERIFIED, Verification
from sparklog.records.batch import iterate_headers
from sparklog.records.markers import EndTransactionMarker, read_marker
from sparklog.records.records import read_records
from support.logs.builders import batch

COMMIT, ABORT = True, False


def write(
    log: Log,
    producer_id: int,
    epoch: int,
    *,
    sequence: int,
    count: int = 1,
    value: bytes = b"value",
    verification: Verification | None = UNVERIFIED,
) -> LogAppendInfo:
    """Append a transactional batch."""
    data = batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence, value=value, transactional=True)
    return log.append(data, leader_epoch=0, verification=verification)


def end(
    log: Log, producer_id: int, epoch: int, is_commit: bool, *, coordinator_epoch: int = 0, is_strict: bool = False
) -> LogAppendInfo:
    """Append a marker."""
    return log.append_marker(
        EndTransactionMarker(is_commit, coordinator_epoch), producer_id=producer_id, producer_epoch=epoch,
        leader_epoch=0, is_strict=is_strict,
    )  # fmt: skip


def read_committed(log: Log, offset: int, high_watermark: int, max_bytes: int) -> list[int]:
    """The offsets that a consumer shows, as the Java client finds them."""
    shown, limit = [], log.last_stable_offset(high_watermark)
    while offset < limit:
        piece = log.read(offset, max_bytes, max_offset=limit)
        coming = sorted(log.aborted_transactions(offset, piece.next_offset), key=lambda each: each.first_offset)
        aborted, data = set(), piece.read()
        for position, header in iterate_headers(data):
            while coming and coming[0].first_offset <= header.last_offset:
                aborted.add(coming.pop(0).producer_id)
            if header.is_control:
                if _is_abort(data[position : position + header.size]):
                    aborted.discard(header.producer_id)
            elif header.record_count and not (header.is_transactional and header.producer_id in aborted):
                shown += [each for each in range(header.base_offset, header.next_offset) if each >= offset]
        assert piece.next_offset > offset, f"nothing at {offset} of {limit}: a reader would ask for ever"
        offset = piece.next_offset
    return shown


def _is_abort(data: bytes) -> bool:
    markers = [read_marker(record) for record in read_records(data)]
    return any(marker and not marker.is_commit for marker in markers)
