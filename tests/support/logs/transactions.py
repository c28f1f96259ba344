"""Transactions in a log, one step at a time."""

from __future__ import annotations

from sparklog.log.log import Appended, Log
from sparklog.log.producers.verifications import UNVERIFIED, Verification
from sparklog.records.markers import Marker
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
) -> Appended:
    """Append a transactional batch."""
    data = batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence, value=value, transactional=True)
    return log.append(data, leader_epoch=0, verification=verification)


def end(
    log: Log, producer_id: int, epoch: int, is_commit: bool, *, coordinator_epoch: int = 0, is_strict: bool = False
) -> Appended:
    """Append a marker."""
    return log.append_marker(
        Marker(is_commit, coordinator_epoch), producer_id=producer_id, producer_epoch=epoch, leader_epoch=0,
        is_strict=is_strict,
    )  # fmt: skip
