"""The producer's buffer: closing of batches, order, memory, time. No network, no clock, no threads."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.client.producer.accumulator import Accumulator, PartitionQueue, TopicQueues
from sparklog.client.producer.batches import HEADER_SIZE, RECORD_OVERHEAD, RowBatch
from sparklog.client.producer.delivery import AcknowledgedBatch, Delivery
from sparklog.client.producer.partitioner import STICKY
from sparklog.testing import SimClock
from support.runs.seeds import examples

BATCH_SIZE = 1_000
LINGER_MS = 5
TIMEOUT_MS = 1_000


class Buffer:
    """An accumulator with a topic of some partitions, and a clock that stands still."""

    def __init__(self, *, partitions: int = 2, memory: int = 100_000, seed: int = 1) -> None:
        self.clock = SimClock()
        self.wakes = 0
        self.accumulator = Accumulator(
            batch_size=BATCH_SIZE,
            linger_ms=LINGER_MS,
            buffer_memory=memory,
            delivery_timeout_ms=TIMEOUT_MS,
            monotonic_ms=self.clock.monotonic_ms,
            random=Random(seed),
            wake=self._wake,
        )
        self.topic: TopicQueues = self.accumulator.add_topic("t", [0] * partitions)

    def _wake(self) -> None:
        self.wakes += 1

    def append(self, value: bytes = b"v", partition: int = 0) -> Delivery | None:
        size = RECORD_OVERHEAD + len(value)
        return self.accumulator.append(self.topic, partition, None, value, 0, (), size, None)

    def ready(self) -> list[int]:
        return [queue.partition.partition for queue in self.accumulator.work(self.clock.monotonic_ms()).ready]

    def take(self, partition: int = 0, max_bytes: int = 10**6) -> list[list[bytes | None]]:
        batches = self.accumulator.take(self.topic.queues[partition], max_bytes)
        return [batch.values for batch in batches if isinstance(batch, RowBatch)]


@pytest.fixture
def buffer() -> Buffer:
    return Buffer()


def test_a_batch_is_ready_when_its_linger_is_over(buffer: Buffer) -> None:
    buffer.append(b"a")
    buffer.clock.advance(LINGER_MS - 1)
    assert buffer.ready() == []
    assert buffer.accumulator.work(buffer.clock.monotonic_ms()).next_ms == LINGER_MS

    buffer.append(b"b")
    buffer.clock.advance(1)

    assert buffer.ready() == [0]
    assert buffer.take() == [[b"a", b"b"]]


def test_a_full_batch_is_ready_at_once(buffer: Buffer) -> None:
    buffer.append(b"x" * 500)
    assert buffer.ready() == []
    buffer.append(b"y" * 600)

    assert buffer.ready() == [0]
    assert [len(values) for values in buffer.take()] == [1]


def test_a_record_larger_than_a_batch_gets_one_of_its_own(buffer: Buffer) -> None:
    buffer.append(b"x" * 5_000)

    assert buffer.ready() == [0]
    assert buffer.take() == [[b"x" * 5_000]]


def test_several_batches_of_a_partition_are_taken_at_once_up_to_a_limit(buffer: Buffer) -> None:
    for letter in b"abc":
        buffer.append(bytes([letter]) * 900)

    assert buffer.take(max_bytes=2 * (HEADER_SIZE + RECORD_OVERHEAD + 900)) == [[b"a" * 900], [b"b" * 900]]


def test_nothing_more_is_taken_of_a_partition_while_it_is_in_flight(buffer: Buffer) -> None:
    buffer.append(b"a" * 2_000)
    buffer.take()
    buffer.append(b"b" * 2_000)
    buffer.append(b"c" * 2_000, partition=1)
    assert buffer.ready() == [1]

    buffer.accumulator.done(buffer.topic.queues[0])

    assert buffer.ready() == [0, 1]


def test_what_is_put_back_comes_first_and_not_before_its_time(buffer: Buffer) -> None:
    for letter in b"abc":
        buffer.append(bytes([letter]) * 2_000)
    queue = buffer.topic.queues[0]
    assert [values[0][:1] for values in buffer.take(max_bytes=4_200) if values[0]] == [b"a", b"b"]

    buffer.accumulator.put_back(queue, 100)

    assert buffer.ready() == []
    buffer.clock.advance(100)
    assert buffer.ready() == [0]
    assert [values[0][:1] for values in buffer.take() if values[0]] == [b"a", b"b", b"c"]


def test_batches_that_were_too_large_together_go_one_by_one(buffer: Buffer) -> None:
    for letter in b"abc":
        buffer.append(bytes([letter]) * 2_000)
    queue = buffer.topic.queues[0]
    buffer.take(max_bytes=4_200)

    buffer.accumulator.divide(queue)

    for letter in b"abc":
        assert buffer.take() == [[bytes([letter]) * 2_000]]
        buffer.accumulator.done(queue)


def test_one_batch_that_was_too_large_goes_as_two_and_later_ones_are_smaller(buffer: Buffer) -> None:
    deliveries = [buffer.append(bytes([letter]) * 300) for letter in b"abcd"]
    queue = buffer.topic.queues[0]
    buffer.take()

    buffer.accumulator.divide(queue)

    assert buffer.take() == [[b"a" * 300]]
    queue.in_flight[0].written(7, -1)
    buffer.accumulator.done(queue)
    assert buffer.take() == [[b"b" * 300]]
    assert deliveries[0]
    assert deliveries[0].result(0).offset == 7
    assert queue.topic.batch_limit < BATCH_SIZE


def test_a_record_that_finds_no_room_is_refused_until_there_is() -> None:
    small = Buffer(memory=250)
    assert small.append(b"x" * 200)
    assert small.append(b"y" * 200) is None
    assert small.accumulator.used_bytes == HEADER_SIZE + RECORD_OVERHEAD + 200

    small.accumulator.hurry()
    assert small.ready() == [0]
    small.take()
    small.accumulator.done(small.topic.queues[0])

    assert small.accumulator.used_bytes == 0
    assert small.append(b"y" * 200)


def test_batches_expire_oldest_first_but_not_in_flight(buffer: Buffer) -> None:
    buffer.append(b"a" * 2_000)
    buffer.take()
    buffer.append(b"b" * 2_000)
    buffer.append(b"c", partition=1)
    buffer.clock.advance(TIMEOUT_MS - 1)
    assert buffer.accumulator.expire(buffer.clock.monotonic_ms()) == []
    buffer.append(b"d" * 2_000, partition=1)
    buffer.clock.advance(1)

    expired = buffer.accumulator.expire(buffer.clock.monotonic_ms())

    assert [batch.values[0][:1] for batch in expired if isinstance(batch, RowBatch) and batch.values[0]] == [b"b", b"c"]
    assert buffer.ready() == [1]


def test_aborting_gives_up_everything_that_is_not_in_flight(buffer: Buffer) -> None:
    buffer.append(b"a" * 2_000)
    buffer.take()
    buffer.append(b"b" * 2_000)
    buffer.append(b"c", partition=1)

    assert len(buffer.accumulator.abort()) == 2
    buffer.accumulator.done(buffer.topic.queues[0])
    assert buffer.accumulator.used_bytes == 0
    assert buffer.ready() == []


def test_the_sender_is_woken_for_a_first_record_and_for_a_full_batch_only(buffer: Buffer) -> None:
    buffer.ready()  # the sender has looked, found nothing, and sleeps
    buffer.append(b"a")
    assert buffer.wakes == 1
    buffer.ready()
    buffer.append(b"b")
    buffer.append(b"c", partition=1)
    assert buffer.wakes == 1  # it will look when the first linger is over, which is soon enough
    buffer.append(b"d" * 2_000)
    assert buffer.wakes == 2


def test_records_without_key_fill_one_batch_before_they_go_elsewhere() -> None:
    buffer = Buffer(partitions=4)
    for number in range(400):
        buffer.append(b"%03d" % number + b"x" * 97, partition=STICKY)

    filled = [batch for queue in buffer.topic.queues for batch in queue.closed]
    assert all(batch.size + 100 + RECORD_OVERHEAD > BATCH_SIZE for batch in filled)
    assert {queue.partition.partition for queue in buffer.topic.queues if queue.closed} == {0, 1, 2, 3}


def test_taking_the_open_batch_moves_records_without_key_on() -> None:
    buffer = Buffer(partitions=4)
    places = []
    for _ in range(40):
        buffer.append(b"v", partition=STICKY)
        buffer.clock.advance(LINGER_MS)
        [number] = buffer.ready()
        buffer.take(number)
        buffer.accumulator.done(buffer.topic.queues[number])
        places.append(number)

    assert all(first != second for first, second in pairwise(places))
    assert set(places) == {0, 1, 2, 3}


def test_partitions_without_leader_get_no_records_without_key() -> None:
    buffer = Buffer(partitions=1)
    topic = buffer.accumulator.add_topic("u", [-1, 0, -1])
    for _ in range(50):
        buffer.accumulator.append(topic, STICKY, None, b"x" * 979, 0, (), 1_000, None)

    assert [len(queue.closed) for queue in topic.queues] == [0, 50, 0]


def test_a_topic_may_grow(buffer: Buffer) -> None:
    buffer.append(b"a")
    assert buffer.accumulator.add_topic("t", [0] * 5) is buffer.topic
    buffer.append(b"b", partition=4)
    buffer.clock.advance(LINGER_MS)

    assert buffer.ready() == [0, 4]


class Delivering(RuleBasedStateMachine):
    """A partition's records are acknowledged in the order of their appends, for any fate of their batches."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = Buffer(partitions=3, memory=20_000)
        self.appended: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        self.acknowledged: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}

    def queues(self, *, in_flight: bool) -> list[PartitionQueue]:
        return [queue for queue in self.buffer.topic.queues if bool(queue.in_flight) == in_flight]

    @rule(partition=st.integers(0, 2), size=st.integers(0, 1_500))
    def append(self, partition: int, size: int) -> None:
        value = b"%05d" % len(self.appended[partition]) + b"x" * size
        if self.buffer.append(value, partition) is not None:
            self.appended[partition].append(value)

    @rule(max_bytes=st.integers(1, 5_000), milliseconds=st.integers(0, 10))
    def take(self, max_bytes: int, milliseconds: int) -> None:
        self.buffer.clock.advance(milliseconds)
        for number in self.buffer.ready():
            self.buffer.take(number, max_bytes)

    @precondition(lambda self: self.queues(in_flight=True))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        queue = data.draw(st.sampled_from(self.queues(in_flight=True)))
        for batch in queue.in_flight:
            assert isinstance(batch, RowBatch)
            self.acknowledged[queue.partition.partition] += batch.values
            batch.outcome.written(AcknowledgedBatch(0, -1, batch.timestamps))
        self.buffer.accumulator.done(queue)

    @precondition(lambda self: self.queues(in_flight=True))
    @rule(data=st.data(), pause_ms=st.integers(0, 20))
    def put_back(self, data: st.DataObject, pause_ms: int) -> None:
        queue = data.draw(st.sampled_from(self.queues(in_flight=True)))
        self.buffer.accumulator.put_back(queue, self.buffer.clock.monotonic_ms() + pause_ms)

    @precondition(
        lambda self: any(len(q.in_flight) > 1 or q.in_flight[0].count > 1 for q in self.queues(in_flight=True))
    )
    @rule(data=st.data())
    def divide(self, data: st.DataObject) -> None:
        large = [q for q in self.queues(in_flight=True) if len(q.in_flight) > 1 or q.in_flight[0].count > 1]
        self.buffer.accumulator.divide(data.draw(st.sampled_from(large)))

    @invariant()
    def order_is_kept(self) -> None:
        for number, values in self.acknowledged.items():
            assert values == self.appended[number][: len(values)]

    @invariant()
    def memory_is_that_of_what_waits(self) -> None:
        waiting = sum(len(self.appended[number]) - len(self.acknowledged[number]) for number in range(3))
        assert (self.buffer.accumulator.used_bytes == 0) == (waiting == 0)
        assert self.buffer.accumulator.used_bytes >= 0

    def teardown(self) -> None:
        for _ in range(1_000):
            self.take(10_000, 50)
            for queue in self.queues(in_flight=True):
                self.acknowledged[queue.partition.partition] += [
                    value for batch in queue.in_flight if isinstance(batch, RowBatch) for value in batch.values
                ]
                self.buffer.accumulator.done(queue)
            if not self.buffer.accumulator.used_bytes:
                break
        assert self.acknowledged == self.appended


TestDelivering = pytest.mark.slow(pytest.mark.soak(Delivering.TestCase))
TestDelivering.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
