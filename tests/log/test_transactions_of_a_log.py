"""Transactions in one log: begin and end, the last stable offset, and aborted transactions (KIP-98, KIP-890)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.base.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from sparklog.log.log import Log
from sparklog.log.producers import producer_state
from sparklog.log.producers.verifications import UNVERIFIED
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.records.markers import EndTransactionMarker, write_marker
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, batch, file_content, open_log, read_all, rewrite, topic_config
from support.logs.transactions import ABORT, COMMIT, end, write

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "transactional-0"
FOLDER = "/logs/orders-0"
DAY_MS = 86_400_000


@pytest.fixture
def log() -> Log:
    return open_log(MemoryFs())


def aborted(log: Log) -> list[AbortedTransaction]:
    return log.aborted_transactions(log.log_start_offset, log.log_end_offset)


class TestVerification:
    def test_the_first_batch_of_a_transaction_needs_one(self, log: Log) -> None:
        first = batch(2, producer_id=7, sequence=0, transactional=True)
        with pytest.raises(InvalidTxnState):
            log.append(bytearray(first), leader_epoch=0)
        assert log.log_end_offset == 0
        asked = log.begin_verification(7, 0)
        assert asked
        log.append(first, leader_epoch=0, verification=asked)
        assert log.begin_verification(7, 0) is None
        log.append(batch(1, producer_id=7, sequence=2, transactional=True), leader_epoch=0)
        assert log.log_end_offset == 3

    def test_one_of_another_producer_or_epoch_does_not_do(self, log: Log) -> None:
        for_other, for_old = log.begin_verification(8, 0), log.begin_verification(7, 0)
        assert log.begin_verification(7, 1)
        for given in (for_other, for_old):
            with pytest.raises(InvalidTxnState):
                write(log, 7, 1, sequence=0, verification=given)
        with pytest.raises(InvalidProducerEpoch):
            log.begin_verification(7, 0)

    @pytest.mark.parametrize("epoch", [0, 1])
    def test_a_verification_is_void_after_a_marker(self, log: Log, epoch: int) -> None:
        write(log, 7, 0, sequence=0)
        end(log, 7, 0, COMMIT)
        late = log.begin_verification(7, 0)
        end(log, 7, epoch, ABORT)
        with pytest.raises((InvalidTxnState, InvalidProducerEpoch)):
            write(log, 7, 0, sequence=1, verification=late)
        assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset

    def test_a_verification_is_void_once_it_was_used(self, log: Log) -> None:
        asked = log.begin_verification(7, 0)
        assert log.begin_verification(7, 0) is asked
        write(log, 7, 0, sequence=0, verification=asked)
        write(log, 7, 0, sequence=1, verification=asked)  # in the same transaction
        end(log, 7, 0, COMMIT)
        with pytest.raises(InvalidTxnState):
            write(log, 7, 0, sequence=2, verification=asked)

    def test_a_verification_is_void_after_a_newer_epoch_a_truncation_and_an_expiry(self) -> None:
        clock = SimClock(START_MS)
        log = open_log(MemoryFs(), clock=clock)
        asked = log.begin_verification(7, 0)
        write(log, 7, 1, sequence=0)
        with pytest.raises(InvalidProducerEpoch):
            write(log, 7, 0, sequence=0, verification=asked)
        asked = log.begin_verification(8, 0)
        log.truncate_to(0)
        with pytest.raises(InvalidTxnState):
            write(log, 8, 0, sequence=0, verification=asked)
        asked = log.begin_verification(9, 0)
        clock.advance(DAY_MS)
        log.expire_producers(clock.time_ms(), DAY_MS)
        with pytest.raises(InvalidTxnState):
            write(log, 9, 0, sequence=0, verification=asked)

    def test_the_lowest_sequence_of_an_unknown_producer_must_come_first(self, log: Log) -> None:
        log.begin_verification(7, 0, 0)
        asked = log.begin_verification(7, 0, 5)
        with pytest.raises(OutOfOrderSequenceNumber):
            write(log, 7, 0, sequence=5, verification=asked)
        write(log, 7, 0, sequence=0, verification=asked)

    def test_there_is_a_bound_to_how_many_are_pending(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 3)
        log = open_log(MemoryFs())
        pending = [log.begin_verification(producer_id, 0) for producer_id in range(4)]
        with pytest.raises(InvalidTxnState):
            write(log, 0, 0, sequence=0, verification=pending[0])
        write(log, 3, 0, sequence=0, verification=pending[3])


class TestMarkers:
    def test_clients_cannot_write_them(self, log: Log) -> None:
        data = write_marker(EndTransactionMarker(True, 0), producer_id=7, producer_epoch=0, timestamp_ms=START_MS)
        with pytest.raises(InvalidRecord):
            log.append(data, leader_epoch=0, verification=UNVERIFIED)

    def test_a_plain_batch_inside_a_transaction_is_refused(self, log: Log) -> None:
        write(log, 7, 0, sequence=0)
        with pytest.raises(InvalidTxnState):
            log.append(batch(1, producer_id=7, sequence=1), leader_epoch=0)
        end(log, 7, 0, COMMIT)
        log.append(batch(1, producer_id=7, sequence=1), leader_epoch=0)

    def test_a_marker_with_a_newer_epoch_begins_that_epoch(self, log: Log) -> None:
        write(log, 7, 0, sequence=0)
        end(log, 7, 1, COMMIT, is_strict=True)
        with pytest.raises(InvalidProducerEpoch):
            write(log, 7, 0, sequence=1)
        with pytest.raises(OutOfOrderSequenceNumber):
            write(log, 7, 1, sequence=1)
        write(log, 7, 1, sequence=0)

    def test_a_strict_marker_needs_a_newer_epoch_than_the_open_transaction(self, log: Log) -> None:
        write(log, 7, 1, sequence=0)
        with pytest.raises(InvalidProducerEpoch):
            end(log, 7, 1, COMMIT, is_strict=True)
        with pytest.raises(InvalidProducerEpoch):
            end(log, 7, 0, COMMIT)
        assert log.last_stable_offset(1) == 0
        assert not end(log, 7, 2, COMMIT, is_strict=True).is_duplicate

    def test_a_repeated_marker_is_not_written_and_is_committed_with_the_first(self, log: Log) -> None:
        write(log, 7, 0, sequence=0)
        first = end(log, 7, 1, ABORT, is_strict=True)
        log.append(batch(1), leader_epoch=0)
        log_end = log.log_end_offset
        again = end(log, 7, 1, ABORT, is_strict=True)
        assert again.is_duplicate
        assert first.last_offset <= again.last_offset < log.log_end_offset == log_end
        assert len(aborted(log)) == 1

    def test_a_newer_coordinator_fences_the_older_one(self, log: Log) -> None:
        write(log, 7, 0, sequence=0)
        end(log, 7, 0, COMMIT, coordinator_epoch=1)
        assert not end(log, 7, 0, COMMIT, coordinator_epoch=2).is_duplicate
        write(log, 7, 0, sequence=1)
        with pytest.raises(TransactionCoordinatorFenced):
            end(log, 7, 0, ABORT, coordinator_epoch=1)
        assert end(log, 7, 0, COMMIT, coordinator_epoch=2).last_offset == 4

    def test_a_marker_of_an_unknown_producer_fences_its_zombies(self, log: Log) -> None:
        assert end(log, 7, 3, ABORT).last_offset == 0
        with pytest.raises(InvalidProducerEpoch):
            write(log, 7, 2, sequence=0)
        assert aborted(log) == []

    def test_a_topic_with_append_times_stamps_them(self) -> None:
        log = open_log(MemoryFs(), config=topic_config(message_timestamp_type="LogAppendTime"))
        appended = end(log, 7, 0, COMMIT)
        assert appended.log_append_time_ms == START_MS
        follower = open_log(MemoryFs())
        follower.as_follower.append(read_all(log))  # the CRC is right
        assert follower.log_end_offset == 1


class TestLastStableOffset:
    def test_the_last_stable_offset_is_the_first_of_the_oldest_open_transaction(self, log: Log) -> None:
        log.append(batch(2), leader_epoch=0)
        assert log.last_stable_offset(1) == 1
        write(log, 7, 0, sequence=0)
        write(log, 8, 0, sequence=0)
        assert log.last_stable_offset(4) == 2
        end(log, 7, 0, COMMIT)
        assert log.last_stable_offset(5) == 3
        end(log, 8, 0, ABORT)
        assert log.last_stable_offset(6) == 6

    def test_a_marker_counts_once_it_is_committed(self, log: Log) -> None:
        write(log, 7, 0, sequence=0)
        write(log, 8, 0, sequence=0)
        end(log, 8, 0, COMMIT)
        end(log, 7, 0, COMMIT)
        assert [log.last_stable_offset(high_watermark) for high_watermark in range(5)] == [0, 0, 0, 0, 4]
        write(log, 8, 0, sequence=1)
        end(log, 8, 0, COMMIT)
        assert [log.last_stable_offset(high_watermark) for high_watermark in (4, 5, 6)] == [4, 4, 6]

    def test_the_last_stable_offset_is_not_below_the_log_start(self, log: Log) -> None:
        write(log, 7, 0, sequence=0)
        log.append(batch(5), leader_epoch=0)
        log.advance_log_start(3)
        assert log.last_stable_offset(6) == 3
        assert log.last_stable_offset(2) == 2

    def test_a_producer_in_a_transaction_is_not_forgotten_for_others(
        self, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 4)
        monkeypatch.setattr(producer_state, "MAX_OPEN", 2)
        write(log, 1, 0, sequence=0)
        write(log, 2, 0, sequence=0)
        with pytest.raises(InvalidTxnState):
            write(log, 3, 0, sequence=0)
        for producer_id in range(10, 20):
            log.append(batch(1, producer_id=producer_id), leader_epoch=0)
        assert {1, 2} < log.producers.keys()
        assert len(log.producers) == 4
        assert log.last_stable_offset(log.log_end_offset) == 0

    def test_many_transactions_behind_a_slow_high_watermark_take_bounded_memory(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sparklog.log.producers.transactions.MAX_ENDED", 3)
        log = open_log(MemoryFs())
        for number in range(10):
            write(log, 7, 0, sequence=number)
            end(log, 7, 0, COMMIT)
        stable = [log.last_stable_offset(high_watermark) for high_watermark in range(21)]
        assert stable[:6] == [0, 0, 2, 2, 4, 4]
        assert stable == sorted(stable)
        assert stable[20] == 20


class TestGolden:
    """Logs of Apache Kafka, and its dumps of them."""

    def copy(self, *, without: str = "?") -> MemoryFs:
        fs = MemoryFs()
        fs.make_dir(FOLDER)
        for path in GOLDEN.iterdir():
            if path.suffix != ".dump" and not path.match(without):
                rewrite(fs, f"{FOLDER}/{path.name}", path.read_bytes())
        return fs

    def test_a_follower_builds_the_index_that_kafka_has(self) -> None:
        leader, fs = open_log(self.copy()), MemoryFs()
        follower = open_log(fs)
        for segment in leader.segments:
            follower.as_follower.follow_segment(segment.base_offset)
            data = read_all(leader, segment.base_offset)
            follower.as_follower.append(data[: segment.size_bytes], rolls=False)
        name = "00000000000000000020.txnindex"
        assert file_content(fs, f"{FOLDER}/{name}") == (GOLDEN / name).read_bytes()
        assert not fs.exists(f"{FOLDER}/00000000000000000000.txnindex")
        assert aborted(follower) == aborted(leader)
        assert follower.producers.keys() == leader.producers.keys()

    @pytest.mark.parametrize("damage", [b"", b"\0" * 34, b"\0\1" + b"\0" * 32, b"x" * 33])
    def test_a_damaged_index_is_built_again(self, damage: bytes) -> None:
        fs, path = self.copy(), f"{FOLDER}/00000000000000000020.txnindex"
        rewrite(fs, path, damage)
        open_log(fs, clean=bool(damage))
        assert file_content(fs, path) == (GOLDEN / "00000000000000000020.txnindex").read_bytes()

    def test_an_unclean_start_builds_a_missing_index(self) -> None:
        fs, name = self.copy(without="*.txnindex"), "00000000000000000020.txnindex"
        log = open_log(fs, clean=False)
        assert file_content(fs, f"{FOLDER}/{name}") == (GOLDEN / name).read_bytes()
        assert aborted(log) == aborted(open_log(self.copy()))
        assert len(aborted(log)) > 1
