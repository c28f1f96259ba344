"""Transactions at a leader: markers are replicated like records, and committed reads end at the last stable offset."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog.base.errors import FencedLeaderEpoch, NotEnoughReplicas, OffsetOutOfRange
from sparklog.log.log import LogAppendInfo, LogSlice
from sparklog.log.producers.verifications import UNVERIFIED
from sparklog.log.read import SegmentsReader
from sparklog.records.markers import EndTransactionMarker
from support.logs.builders import batch
from support.logs.transactions import ABORT, COMMIT
from support.replicas.replica_host import Host, run


def write(host: Host, sequence: int, *, producer_id: int = 7) -> LogAppendInfo:
    data = batch(2, producer_id=producer_id, sequence=sequence, transactional=True)
    return host.replicas.append(host.replica, data, acks=-1, verification=UNVERIFIED)


def end(
    host: Host, is_commit: bool, *, producer_id: int = 7, epoch: int = 0, leader_epoch: int | None = None
) -> LogAppendInfo:
    return host.replicas.append_marker(
        host.replica, EndTransactionMarker(is_commit, 0), producer_id=producer_id, producer_epoch=epoch,
        is_strict=False, leader_epoch=leader_epoch,
    )  # fmt: skip


def committed(host: Host, offset: int) -> tuple[int, list[tuple[int, int, int]]]:
    """The offset after a committed read, and its aborted transactions."""
    found, aborted = host.replicas.read_committed(host.replica, offset, 1 << 20, min_one_batch=True)
    return found.next_offset, [each[:3] for each in aborted]


def test_a_transaction_is_read_once_its_marker_is_replicated() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        host.fetched(2, 0)
        host.fetched(3, 0)
        write(host, 0)
        for follower in (2, 3):
            host.fetched(follower, 2)
        assert host.replica.partition.high_watermark == 2
        assert host.replica.last_stable_offset == 0
        assert committed(host, 0) == (0, [])
        assert end(host, ABORT).last_offset == 2
        host.fetched(2, 3)
        assert host.replica.last_stable_offset == 0
        host.fetched(3, 3)
        assert host.replica.last_stable_offset == 3
        assert committed(host, 0) == (3, [(7, 0, 2)])
        again = end(host, ABORT)
        assert again.is_duplicate
        assert host.replica.partition.is_committed(again.last_offset)

    run(test)


def test_a_marker_needs_replicas_in_sync_and_the_leader_epoch() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 3, overrides={"min.insync.replicas": "4"})
        data = batch(2, producer_id=7, transactional=True)
        host.replicas.append(host.replica, data, acks=1, verification=UNVERIFIED)
        with pytest.raises(FencedLeaderEpoch):
            end(host, COMMIT, leader_epoch=2)
        with pytest.raises(NotEnoughReplicas):
            end(host, COMMIT)
        assert host.replica.log.log_end_offset == 2

    run(test)


def test_a_read_and_its_aborted_transactions_come_from_the_same_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention removes a segment with its transaction index while a reader holds aborted records of it."""

    async def test(host: Host) -> None:
        await host.become(1, 0, isr=(1,))
        log = host.replica.log
        write(host, 0)
        end(host, ABORT)
        log.roll()
        host.replicas.append(host.replica, batch(1), acks=-1)
        read = SegmentsReader.read
        assert committed(host, 0) == (3, [(7, 0, 2)])

        def read_and_remove(*args: Any, **how: Any) -> LogSlice:
            found = read(*args, **how)
            log.advance_log_start(3)
            log.delete_old_segments(0)
            return found

        monkeypatch.setattr(SegmentsReader, "read", read_and_remove)
        with pytest.raises(OffsetOutOfRange):
            committed(host, 0)

    run(test)
