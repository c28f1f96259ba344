"""Producer state: the batches that a log accepts, over rolls, truncations, retention and openings."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.base.errors import InvalidProducerEpoch, InvalidRecord, OutOfOrderSequenceNumber
from sparklog.log.log import Log
from sparklog.log.producers import producer_state
from sparklog.log.producers.producer_state import BATCHES_KEPT, MarkerBatch, ProducerStates
from sparklog.records.batch import iterate_headers, seal
from sparklog.records.records import Record, write_records
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, batch, open_log, read_all, topic_config
from support.runs.seeds import examples

LAST_SEQUENCE = 2**31 - 1
DAY_MS = 86_400_000


@pytest.fixture
def log() -> Log:
    return open_log(MemoryFs())


def send(log: Log, *batches: bytes | bytearray) -> tuple[int, int, bool]:
    """First and last offset, and whether it was there already."""
    appended = log.append(bytearray(b"".join(batches)), leader_epoch=0)
    return appended.first_offset, appended.last_offset, appended.is_duplicate


def numbered(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7) -> bytearray:
    return batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence)


class TestSequences:
    def test_each_of_the_last_five_batches_is_known_again_and_older_ones_are_out_of_order(self, log: Log) -> None:
        for sequence in range(0, 12, 2):
            send(log, numbered(sequence, 2))
        for sequence in range(2, 12, 2):
            assert send(log, numbered(sequence, 2)) == (sequence, sequence + 1, True)
        with pytest.raises(OutOfOrderSequenceNumber):
            send(log, numbered(0, 2))
        assert log.log_end_offset == 12

    def test_other_records_under_known_sequences_are_out_of_order(self, log: Log) -> None:
        send(log, numbered(0, 3))
        for other in (numbered(0, 2), numbered(1, 2), numbered(0, 4)):
            with pytest.raises(OutOfOrderSequenceNumber):
                send(log, other)

    def test_sequences_go_on_with_0(self, log: Log) -> None:
        send(log, numbered(LAST_SEQUENCE - 1, 4))
        assert send(log, numbered(2)) == (4, 4, False)
        assert send(log, numbered(LAST_SEQUENCE - 1, 4)) == (0, 3, True)
        send(log, numbered(LAST_SEQUENCE, 1, epoch=0, producer_id=8))
        assert send(log, numbered(0, producer_id=8)) == (6, 6, False)

    def test_a_producer_of_whom_nothing_is_known_may_begin_anywhere(self, log: Log) -> None:
        assert send(log, numbered(41, epoch=3)) == (0, 0, False)

    def test_a_new_epoch_begins_with_0_and_ends_the_old_one(self, log: Log) -> None:
        send(log, numbered(0, epoch=1))
        with pytest.raises(OutOfOrderSequenceNumber):
            send(log, numbered(1, epoch=2))
        send(log, numbered(0, epoch=2))
        with pytest.raises(InvalidProducerEpoch):
            send(log, numbered(1, epoch=1))
        with pytest.raises(InvalidProducerEpoch):
            send(log, numbered(0, epoch=1))

    def test_several_batches_are_taken_together_or_not_at_all(self, log: Log) -> None:
        send(log, numbered(0, 2), numbered(2, 2), numbered(4))
        with pytest.raises(OutOfOrderSequenceNumber):
            send(log, numbered(5), numbered(7))
        with pytest.raises(OutOfOrderSequenceNumber):
            send(log, numbered(4), numbered(5))
        with pytest.raises(InvalidRecord):
            send(log, numbered(5), batch(1))
        assert send(log, numbered(2, 2), numbered(4)) == (2, 4, True)
        assert send(log, numbered(5), numbered(6)) == (5, 6, False)

    def test_each_of_the_last_five_batches_is_known_again_after_a_stop(self) -> None:
        fs = MemoryFs()
        log = open_log(fs)
        for sequence in range(0, 12, 2):
            send(log, numbered(sequence, 2))
        known = log.producers
        log.close()
        again = open_log(fs)
        assert again.producers == known
        for sequence in range(2, 12, 2):
            assert send(again, numbered(sequence, 2)) == (sequence, sequence + 1, True)
        with pytest.raises(OutOfOrderSequenceNumber):
            send(again, numbered(0, 2))
        assert send(again, numbered(12)) == (12, 12, False)

    def test_a_request_is_known_again_after_a_stop_that_leaves_only_its_last_batch(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(producer_state, "LATE_PRODUCERS", 0)  # as in a snapshot that Kafka has written
        fs = MemoryFs()
        log = open_log(fs)
        request = (numbered(LAST_SEQUENCE - 1, 2), numbered(0, 3), numbered(3))
        send(log, batch(2))
        assert send(log, *request) == (2, 7, False)
        log.close()
        again = open_log(fs)
        assert len(again.producers[7].batches) == 1
        assert send(again, *request) == (2, 7, True)
        with pytest.raises(OutOfOrderSequenceNumber):
            send(again, numbered(LAST_SEQUENCE - 2), *request[1:])
        assert send(again, numbered(4)) == (8, 8, False)

    def test_a_refused_batch_changes_no_producer_state(self, log: Log) -> None:
        send(log, numbered(0))
        known = log.producers
        with pytest.raises(OutOfOrderSequenceNumber):
            send(log, numbered(0, epoch=1, producer_id=9), numbered(5))
        assert log.producers == known

    @pytest.mark.parametrize("fields", [{"sequence": -1}, {"epoch": -1}])
    def test_a_producer_id_needs_an_epoch_and_a_sequence(self, log: Log, fields: dict[str, int]) -> None:
        values = {"epoch": 0, "sequence": 0} | fields
        record = Record(offset=0, timestamp_ms=START_MS, value=b"v", sequence=values["sequence"])
        with pytest.raises(InvalidRecord):
            send(log, write_records([record], producer_id=7, producer_epoch=values["epoch"]))

    def test_a_duplicate_is_answered_with_its_append_time(self) -> None:
        clock = SimClock(START_MS)
        log = open_log(MemoryFs(), clock=clock, config=topic_config(message_timestamp_type="LogAppendTime"))
        send(log, numbered(0))
        clock.advance(500)
        assert log.append(numbered(0), leader_epoch=0).log_append_time_ms == START_MS


class TestForgetting:
    def test_a_silent_producer_is_forgotten_whatever_its_records_timestamps(self) -> None:
        clock = SimClock(START_MS + 10 * DAY_MS)
        log = open_log(MemoryFs(), clock=clock)
        send(log, numbered(0, producer_id=1))
        clock.advance(DAY_MS // 2)
        send(log, numbered(0, producer_id=2))
        assert log.expire_producers(clock.time_ms(), DAY_MS) == 0
        clock.advance(DAY_MS // 2)
        assert log.expire_producers(clock.time_ms(), DAY_MS) == 1
        assert log.producers.keys() == {2}

    def test_there_is_a_bound_to_how_many_are_remembered(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 3)
        for producer_id in (1, 2, 3):
            send(log, numbered(0, producer_id=producer_id))
        send(log, numbered(1, producer_id=1))
        send(log, numbered(0, producer_id=4))
        assert log.producers.keys() == {1, 3, 4}

    def test_a_producer_in_a_transaction_is_not(self) -> None:
        states = ProducerStates()
        data = write_records(
            [Record(offset=0, timestamp_ms=START_MS, value=b"v", sequence=0)],
            producer_id=1, producer_epoch=0, transactional=True,
        )  # fmt: skip
        header = next(iterate_headers(data))[1]
        found = producer_state.read_producer_batch(header, b"")
        assert found
        states.replay(found, START_MS)
        assert states.expire(START_MS + DAY_MS, 1) == 0
        states.replay(MarkerBatch(1, 0, 1, True, 3, START_MS + 5), START_MS)
        assert states.get(1).coordinator_epoch == 3
        assert states.expire(START_MS + DAY_MS, 1) == 1


def test_a_marker_that_cannot_be_read_says_nothing(log: Log) -> None:
    data = write_records(
        [Record(offset=0, timestamp_ms=START_MS, key=b"?", value=b"?")], producer_id=1, producer_epoch=0, control=True
    )
    seal(data)
    log.as_follower.append(data)
    assert log.log_end_offset == 1
    assert log.producers == {}


Written = tuple[int, int, int, int, int]
"""Producer id, epoch, first sequence, number of records, first offset."""


class ProducersOfALog(RuleBasedStateMachine):
    """Producers that send in order, again, too early and with old epochs, to a log with rolls, truncations and starts.

    The model is the list of written batches. The log must know each producer's newest epoch and its last five batches.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fs = MemoryFs()
        self.clock = SimClock(START_MS)
        self.config = topic_config(internal_segment_bytes=700, retention_bytes=1500, file_delete_delay_ms=0)
        self.log = open_log(self.fs, config=self.config, clock=self.clock)
        self.written: list[Written] = []

    def of(self, producer_id: int) -> list[Written]:
        """The producer's batches of its newest epoch."""
        mine = [each for each in self.written if each[0] == producer_id]
        return [each for each in mine if each[1] == mine[-1][1]]

    def next_of(self, producer_id: int) -> tuple[int, int]:
        """Epoch and sequence of the next batch."""
        mine = self.of(producer_id)
        return (mine[-1][1], (mine[-1][2] + mine[-1][3]) % 2**31) if mine else (0, LAST_SEQUENCE - 5)

    @rule(producer_id=st.integers(1, 3), counts=st.lists(st.integers(1, 4), min_size=1, max_size=3), bump=st.booleans())
    def append(self, producer_id: int, counts: list[int], bump: bool) -> None:
        epoch, sequence = self.next_of(producer_id)
        if bump and self.of(producer_id):
            epoch, sequence = epoch + 1, 0
        data, new, offset = bytearray(), [], self.log.log_end_offset
        for count in counts:
            data += numbered(sequence, count, epoch=epoch, producer_id=producer_id)
            new.append((producer_id, epoch, sequence, count, offset))
            sequence, offset = (sequence + count) % 2**31, offset + count
        assert send(self.log, data) == (new[0][4], offset - 1, False)
        self.written += new

    @rule()
    def append_without_a_number(self) -> None:
        send(self.log, batch(2))

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        producer_id, epoch, sequence, count, offset = data.draw(st.sampled_from(self.written))
        end, known = self.log.log_end_offset, self.log.producers[producer_id].batches
        again = numbered(sequence, count, epoch=epoch, producer_id=producer_id)
        if epoch < self.of(producer_id)[-1][1]:
            with pytest.raises(InvalidProducerEpoch):
                send(self.log, again)
        elif offset >= known[0].first_offset:
            assert send(self.log, again) == (offset, offset + count - 1, True)
        else:
            with pytest.raises(OutOfOrderSequenceNumber):
                send(self.log, again)
        assert self.log.log_end_offset == end

    @precondition(lambda self: self.written)
    @rule(data=st.data(), gap=st.integers(1, 2**31 - 20))
    def send_too_early(self, data: st.DataObject, gap: int) -> None:
        producer_id = data.draw(st.sampled_from(self.written))[0]
        epoch, sequence = self.next_of(producer_id)
        with pytest.raises(OutOfOrderSequenceNumber):
            send(self.log, numbered((sequence + gap) % 2**31, 5, epoch=epoch, producer_id=producer_id))

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        first = self.log.segments[0].base_offset
        offset = data.draw(st.integers(first, self.log.log_end_offset))
        self.log.truncate_to(offset)
        self.written = [each for each in self.written if each[4] + each[3] <= self.log.log_end_offset]

    @rule()
    def delete_from_the_front(self) -> None:
        self.log.delete_old_segments(self.clock.time_ms())

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.open(clean=True)

    @rule()
    def be_killed_and_open(self) -> None:
        self.open(clean=False)

    def open(self, *, clean: bool) -> None:
        self.log = open_log(
            self.fs, config=self.config, clock=self.clock, clean=clean,
            recovery_point=self.log.recovery_point, log_start_offset=self.log.log_start_offset,
        )  # fmt: skip

    @invariant()
    def what_is_known_is_what_was_written(self) -> None:
        known = self.log.producers
        assert known.keys() == {each[0] for each in self.written}
        for producer_id, state in known.items():
            mine = self.of(producer_id)
            assert state.epoch == mine[-1][1]
            assert [(each.first_sequence, each.first_offset) for each in state.batches] == [
                (sequence, offset) for _, _, sequence, _, offset in mine[-BATCHES_KEPT:]
            ]

    @invariant()
    def each_batch_is_in_the_log_once(self) -> None:
        found = [
            (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count, header.base_offset)
            for _, header in iterate_headers(read_all(self.log))
            if header.producer_id >= 0
        ]
        assert found == self.written[len(self.written) - len(found) :]


TestProducersOfALog = pytest.mark.slow(pytest.mark.soak(ProducersOfALog.TestCase))
TestProducersOfALog.settings = settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
