"""A follower's producer state agrees with its batches, after copies, truncations, rolls, stops and kills.

So once the follower leads, it accepts exactly the next batches.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import OutOfOrderSequenceNumber
from sparklog.log.log import Log
from sparklog.records.batch import iterate_headers
from sparklog.testing.memory_fs import MemoryFs
from support.logs.builders import batch, open_log, read_all

PRODUCERS = 3
STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, PRODUCERS - 1), st.integers(1, 4)),
    st.tuples(st.just("copy"), st.integers(1, 1500), st.just(0)),
    st.tuples(st.just("cut"), st.integers(0, 100), st.just(0)),
    st.tuples(st.just("elect"), st.just(0), st.just(0)),
    st.tuples(st.just("reopen"), st.integers(0, 1), st.integers(0, 1)),
)


class Pair:
    """Two replicas; the first leads."""

    def __init__(self) -> None:
        self.files = [MemoryFs(), MemoryFs()]
        self.logs = [open_log(fs) for fs in self.files]
        self.epoch = 0

    def send(self, producer: int, count: int) -> None:
        leader = self.logs[0]
        data = batch(count, producer_id=producer, sequence=following(leader).get(producer, 0))
        assert not leader.append(bytearray(data), leader_epoch=self.epoch).is_duplicate
        assert leader.append(bytearray(data), leader_epoch=self.epoch).is_duplicate
        ahead = batch(1, producer_id=producer, sequence=following(leader)[producer] + 5)
        with pytest.raises(OutOfOrderSequenceNumber):
            leader.append(bytearray(ahead), leader_epoch=self.epoch)

    def copy(self, max_bytes: int, _: int) -> None:
        leader, follower = self.logs
        if follower.log_end_offset < leader.log_end_offset:
            found = leader.read(follower.log_end_offset, max_bytes, for_replica=True)
            follower.as_follower.follow_segment(found.segment_base_offset)
            follower.as_follower.append(found.read(), rolls=False, takes_gaps=False)

    def cut(self, percent: int, _: int) -> None:
        follower = self.logs[1]
        follower.truncate_to(follower.log_end_offset * percent // 100)

    def elect(self, _: int, __: int) -> None:
        """The leader dies and comes back as a follower; records that were not copied are lost."""
        self.logs.reverse()
        self.files.reverse()
        self.epoch += 1
        self.logs[1].truncate_to(self.logs[0].log_end_offset)

    def reopen(self, which: int, is_clean: int) -> None:
        log = self.logs[which]
        if is_clean:
            log.close()
        self.logs[which] = open_log(self.files[which], clean=bool(is_clean), recovery_point=log.recovery_point)


def following(log: Log) -> dict[int, int]:
    """The next sequence number of each producer, by its batches."""
    return {each.producer_id: each.base_sequence + each.record_count for _, each in iterate_headers(read_all(log))}


@settings(max_examples=25)
@given(st.lists(STEPS, max_size=25))
def test_replicas_know_of_each_producer_what_their_batches_say(steps: list[tuple[str, int, int]]) -> None:
    pair = Pair()
    for name, first, second in steps:
        getattr(pair, name)(first, second)
        for log in pair.logs:
            known = {producer: state.last_sequence + 1 for producer, state in log.producers.items()}
            assert known == following(log)
