"""The producer's buffer: unsent records by partition, and the memory that they take.

    append ──▶ open batch ──full──▶ closed batches ──take──▶ in flight ──acknowledged, or failed──▶ release
                        └──linger over, flush, no memory left────▶                └──retriable──▶ put_back, divide

While batches of a partition are in flight, no others of it are taken, so its records stay in order. Batches put back go
to the front. A request may hold several batches of a partition, so this costs no throughput.

An idempotent producer's batches get sequence numbers when they are first taken (`ProducerIdentity`). At most
`NUMBERED_IN_FLIGHT` batches of a partition are taken at once: a broker remembers no more, and the next leader may have
only some of them. Batches put back are taken again together and keep their numbers, so that the broker recognizes them.
A numbered batch that is given up may or may not have been written. The partition then continues with the next epoch,
and its sequence numbers begin with 0. Other batches that may have been written are given up too: under new numbers
the broker might write them twice.

Any thread may call `append`; the other methods run on the producer's event loop. One lock guards the state. `append`
calls `wake` for new work of the sender: a closed batch, or the first record of a batch, which begins its linger. This
module never waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client.producer.batches import NO_IDENTITY, SEQUENCES, Headers, ProducerBatch, ProducerIdentity, RowBatch
from sparklog.client.producer.delivery import Delivery, OnDelivery
from sparklog.client.producer.partitioner import next_sticky

NEVER_MS = float("inf")
AT_ONCE_MS = float("-inf")
LAST_EPOCH = (1 << 15) - 1
NUMBERED_IN_FLIGHT = 5
"""Latest batches of a producer that a partition remembers (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""


class PartitionQueue:
    """The waiting and in-flight batches of one partition."""

    __slots__ = (
        "base_identity",
        "closed",
        "identity",
        "in_flight",
        "next_sequence",
        "open",
        "partition",
        "retried_together",
        "retry_at_ms",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: TopicQueues, partition: TopicPartition) -> None:
        self.topic = topic
        self.partition = partition
        self.open: RowBatch | None = None
        self.closed: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.retry_at_ms = 0
        self.retried_together = 0  # number of closed batches to take together, as before
        self.base_identity = NO_IDENTITY  # the producer's identity from which that of this partition derives
        self.identity = NO_IDENTITY
        self.next_sequence = 0

    def oldest_ms(self) -> float:
        """Return the creation time of the oldest waiting batch; NEVER_MS if none waits."""
        if self.closed:
            return self.closed[0].created_ms
        return self.open.created_ms if self.open else NEVER_MS

    def number(self, batches: Sequence[ProducerBatch], identity: ProducerIdentity) -> None:
        """Number the batches that have no number, under this partition's identity.

        That is `identity`, the producer's, until a failure. With a new identity numbers begin with 0.
        """
        if self.base_identity != identity:
            self.base_identity = self.identity = identity
            self.next_sequence = 0
        for batch in batches:
            if batch.sequence < 0:
                batch.number(self.identity, self.next_sequence)
                self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES


class TopicQueues:
    """The queues of one topic, by partition; `sticky` is the partition for records without key.

    The topic has as many partitions as `leaders`.
    """

    __slots__ = ("batch_limit", "leaders", "name", "queues", "sticky")

    def __init__(self, name: str, leaders: Sequence[int], batch_limit: int) -> None:
        self.name = name
        self.leaders: Sequence[int] = ()
        self.queues: list[PartitionQueue] = []
        self.batch_limit = batch_limit
        self.sticky = -1
        self.update(leaders)

    def update(self, leaders: Sequence[int]) -> None:
        """Update the partitions' leaders. A topic that was made again may have fewer than there are queues."""
        self.leaders = leaders
        for number in range(len(self.queues), len(leaders)):
            self.queues.append(PartitionQueue(self, TopicPartition(self.name, number)))

    def choose_sticky(self, random: Random) -> None:
        """Choose another partition for records without key."""
        self.sticky = next_sticky(self.sticky, self.leaders, random)


class ReadyQueues(NamedTuple):
    """Queues to take from now, and the time of the next look without a wake (monotonic ms; NEVER_MS: none)."""

    ready: list[PartitionQueue]
    next_ms: float


class Accumulator:
    """The producer's buffer. Pure except for its lock."""

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: int,
        buffer_memory: int,
        delivery_timeout_ms: int,
        monotonic_ms: Callable[[], int],
        random: Random,
        wake: Callable[[], None],
    ) -> None:
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._buffer_memory = buffer_memory
        self._delivery_timeout_ms = delivery_timeout_ms
        self._monotonic_ms = monotonic_ms
        self._random = random
        self._wake = wake
        self._lock = threading.Lock()
        self.topics: dict[str, TopicQueues] = {}  # read-only outside this class
        self._busy: dict[PartitionQueue, None] = {}  # non-empty queues, in the order in which they filled
        self._used = 0
        self.is_identity_used_up = False  # a partition has no epochs left: a new producer id is needed
        self._hurried = 0
        self._refusal: Callable[[], SparklogError] | None = None
        self._next_work_ms: float = NEVER_MS  # when the sender looks without a wake
        self._next_expiry_ms = 0.0

    @property
    def used_bytes(self) -> int:
        """Bytes that are reserved for records waiting or in flight."""
        return self._used

    @property
    def is_sender_awaited(self) -> bool:
        """Whether the sender has been woken and has not yet looked for work."""
        return self._next_work_ms == AT_ONCE_MS

    def add_topic(self, name: str, leaders: Sequence[int]) -> TopicQueues:
        """Create the topic's queues, or update the leaders of existing ones; return the queues."""
        with self._lock:
            found = self.topics.get(name)
            if found is None:
                found = self.topics[name] = TopicQueues(name, leaders, self._batch_size)
            else:
                found.update(leaders)
            if not 0 <= found.sticky < len(leaders):
                found.choose_sticky(self._random)
            return found

    def identity_renewed(self) -> None:
        """Note that the sender has a new producer id."""
        self.is_identity_used_up = False

    # Acceptance of records.

    def accept(self) -> None:
        """Take records again, after `refuse`."""
        with self._lock:
            self._refusal = None

    def refuse(self, refusal: Callable[[], SparklogError]) -> None:
        """Take no records from now on: `append` raises the result of `refusal`."""
        with self._lock:
            self._refusal = refusal

    def check_accepting(self) -> None:
        """Raise the error of `refuse` if no records are taken; from any thread."""
        refusal = self._refusal
        if refusal is not None:
            raise refusal()

    # Called to add records, `append` from any thread.

    def append(
        self,
        topic: TopicQueues,
        number: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        size: int,
        on_delivery: OnDelivery | None,
    ) -> Delivery | None:
        """Add a record to partition `number` (-1: the sticky one), and return its delivery.

        None if there is no room for its `size` bytes. Raises an error if no records are taken (`refuse`).
        """
        with self._lock:
            if self._refusal is not None:
                raise self._refusal()
            if self._used + size > self._buffer_memory:
                return None
            queue = topic.queues[number if number >= 0 else topic.sticky]
            batch = queue.open
            if batch is not None and batch.size + size > topic.batch_limit:
                self._close(queue)
                queue = topic.queues[number if number >= 0 else topic.sticky]
                batch = queue.open
            if batch is None:
                batch = self._open(queue, self._monotonic_ms())
            self._used += size
            delivery = batch.append(key, value, timestamp_ms, headers, size)
            if on_delivery is not None:
                batch.outcome.call_when_done(batch.count - 1, on_delivery)
            if batch.size >= topic.batch_limit:
                self._close(queue)
            return delivery

    def append_batches(self, topic: TopicQueues, batches: Sequence[ProducerBatch]) -> bool:
        """Add whole batches behind those already waiting; return False if there is no room for all of them.

        Batches that together are larger than the buffer are accepted when it is empty. Raises as `append` does.
        """
        with self._lock:
            if self._refusal is not None:
                raise self._refusal()
            size = sum(batch.size for batch in batches)
            if self._used and self._used + size > self._buffer_memory:
                return False
            self._used += size
            for batch in batches:
                queue = topic.queues[batch.outcome.partition.partition]
                if queue.open is not None:
                    self._close(queue)
                queue.closed.append(batch)
                self._busy[queue] = None
            self._notify()
            return True

    def hurry(self) -> None:
        """Send also batches that are not full, until `unhurry`: a caller waits for room."""
        with self._lock:
            self._hurried += 1
            self._notify()

    def unhurry(self) -> None:
        """Undo one `hurry`."""
        with self._lock:
            self._hurried -= 1

    # Called by the sender.

    def work(self, now_ms: int) -> ReadyQueues:
        """Return the queues to take from, longest filled first, and when others are due or batches expire."""
        with self._lock:
            ready = []
            times = []
            for queue in self._busy:
                if queue.in_flight:
                    continue
                due_ms: float = queue.retry_at_ms
                if not (queue.closed or self._hurried):
                    assert queue.open is not None
                    due_ms = max(due_ms, queue.open.created_ms + self._linger_ms)
                if due_ms <= now_ms:
                    ready.append(queue)
                    due_ms = NEVER_MS  # its batches still expire without a leader
                times.append(min(due_ms, queue.oldest_ms() + self._delivery_timeout_ms))
            self._next_work_ms = min(times, default=NEVER_MS)
            return ReadyQueues(ready, self._next_work_ms)

    def take(
        self, queue: PartitionQueue, max_bytes: int, identity: ProducerIdentity = NO_IDENTITY
    ) -> list[ProducerBatch]:
        """Return the next batches of a ready queue, then in flight: as many as fit in `max_bytes`, but at least one.

        With an `identity` they are numbered, and at most NUMBERED_IN_FLIGHT. Numbered batches that were put back keep
        their numbers and are taken together.
        """
        with self._lock:
            if not queue.closed and queue.open is not None:
                self._close(queue, notify=False)
            if queue.retried_together:
                taken = [queue.closed.popleft() for _ in range(queue.retried_together)]
                queue.retried_together = 0
            else:
                taken = self._first_fitting(
                    queue, max_bytes, len(queue.closed) if identity == NO_IDENTITY else NUMBERED_IN_FLIGHT
                )
            if identity != NO_IDENTITY:
                queue.number(taken, identity)
            queue.in_flight = taken
            return taken

    def put_back(self, queue: PartitionQueue, retry_at_ms: int) -> None:
        """Put batches in flight back at the front of their queue, to be sent again from `retry_at_ms` on."""
        with self._lock:
            queue.closed.extendleft(reversed(queue.in_flight))
            for batch in queue.in_flight:
                batch.mark_doubtful()
            queue.retry_at_ms = retry_at_ms
            queue.retried_together = len(queue.in_flight) if queue.in_flight[0].sequence >= 0 else 0
            self._end_flight(queue)

    def done(self, queue: PartitionQueue) -> None:
        """End the flight of batches that were acknowledged or have failed, and free their memory."""
        with self._lock:
            self._used -= sum(batch.size for batch in queue.in_flight)
            queue.retry_at_ms = 0
            self._end_flight(queue)

    def give_up(self, queue: PartitionQueue) -> list[ProducerBatch]:
        """End the flight of failed batches; return the other batches that fail with them."""
        with self._lock:
            also = self._begin_anew(queue)
            self._used -= sum(batch.size for batch in also)
        self.done(queue)
        return also

    def divide(self, queue: PartitionQueue, *, is_doubtful: bool = False) -> None:
        """Put batches in flight back for smaller requests: several batches one by one, a single batch split.

        is_doubtful: the broker may have written some of the batches.
        """
        with self._lock:
            batches: Sequence[ProducerBatch] = queue.in_flight
            if is_doubtful:
                for batch in batches:
                    batch.mark_doubtful()
            if len(batches) == 1:
                [batch] = batches
                batches = batch.split()
                self._used += sum(half.size for half in batches) - batch.size
                queue.topic.batch_limit = max(min(queue.topic.batch_limit, batch.size // 2), 1)
            for batch in batches:
                batch.send_alone()
            queue.closed.extendleft(reversed(batches))
            self._end_flight(queue)

    def note(self, topic: str, error: str) -> None:
        """Note why batches of the topic wait, for the error of a time-out."""
        with self._lock:
            for queue in self._busy:
                if queue.partition.topic == topic:
                    for batch in (*queue.closed, *([queue.open] if queue.open else [])):
                        batch.note(error)

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Remove and return batches, not in flight, whose delivery time-out has passed; frees their memory."""
        if now_ms < self._next_expiry_ms:
            return []
        with self._lock:
            created_before_ms = now_ms - self._delivery_timeout_ms
            expired = [batch for queue in list(self._busy) for batch in self._drop(queue, created_before_ms)]
            oldest_ms = min((queue.oldest_ms() for queue in self._busy), default=now_ms)
            self._next_expiry_ms = min(oldest_ms, now_ms) + self._delivery_timeout_ms
            return expired

    def drop_missing(self, topic: TopicQueues) -> list[ProducerBatch]:
        """Remove and return batches, not in flight, of partitions that the topic no longer has; frees their memory."""
        with self._lock:
            return [batch for queue in topic.queues[len(topic.leaders) :] for batch in self._drop(queue, None)]

    def abort(self) -> list[ProducerBatch]:
        """Remove and return every batch that is not in flight."""
        with self._lock:
            return [batch for queue in list(self._busy) for batch in self._drop(queue, None)]

    def incomplete(self) -> list[ProducerBatch]:
        """Return every batch that waits or is in flight; closes the open ones."""
        with self._lock:
            for queue in self._busy:
                if queue.open is not None:
                    self._close(queue)
            return [batch for queue in self._busy for batch in (*queue.in_flight, *queue.closed)]

    def unacknowledged(self) -> list[ProducerBatch]:
        """Return every batch that waits or is in flight; open ones may still grow."""
        with self._lock:
            return [
                batch
                for queue in self._busy
                for batch in (*queue.in_flight, *queue.closed, *((queue.open,) if queue.open else ()))
            ]

    def expires_ms(self, batches: Iterable[ProducerBatch]) -> int:
        """Return when the first of the batches reaches `delivery_timeout_ms` (monotonic ms)."""
        return min(batch.created_ms for batch in batches) + self._delivery_timeout_ms

    # With the lock held.

    def _begin_anew(self, queue: PartitionQueue) -> list[ProducerBatch]:
        """Continue with the next epoch, or a new producer id if there is none; return the batches to give up."""
        queue.retried_together = 0
        doubtful: list[ProducerBatch] = []
        if queue.identity != NO_IDENTITY:
            while queue.closed and queue.closed[0].is_doubtful:
                doubtful.append(queue.closed.popleft())
            queue.next_sequence = 0
            producer_id, epoch, _ = queue.identity
            self.is_identity_used_up |= epoch == LAST_EPOCH
            queue.identity = ProducerIdentity(producer_id, epoch + 1)
            if epoch == LAST_EPOCH:
                queue.base_identity = NO_IDENTITY
            for batch in queue.closed:
                batch.number(NO_IDENTITY, -1)
        return doubtful

    def _first_fitting(self, queue: PartitionQueue, max_bytes: int, most: int) -> list[ProducerBatch]:
        taken = [queue.closed.popleft()]
        size = taken[0].size
        while (
            queue.closed
            and len(taken) < most
            and size + queue.closed[0].size <= max_bytes
            and not (taken[0].is_sent_alone or queue.closed[0].is_sent_alone)
        ):
            taken.append(queue.closed.popleft())
            size += taken[-1].size
        return taken

    def _open(self, queue: PartitionQueue, now_ms: int) -> RowBatch:
        batch = queue.open = RowBatch(queue.partition, now_ms)
        self._used += batch.size
        self._busy[queue] = None
        if now_ms + self._linger_ms < self._next_work_ms or self._hurried:
            self._notify()
        return batch

    def _close(self, queue: PartitionQueue, *, notify: bool = True) -> None:
        assert queue.open is not None
        queue.closed.append(queue.open)
        queue.open = None
        topic = queue.topic
        if topic.sticky == queue.partition.partition:
            topic.choose_sticky(self._random)
        if notify and not queue.in_flight:
            self._notify()

    def _notify(self) -> None:
        if self._next_work_ms != AT_ONCE_MS:
            self._next_work_ms = AT_ONCE_MS
            self._wake()

    def _end_flight(self, queue: PartitionQueue) -> None:
        queue.in_flight = []
        if not queue.closed and queue.open is None:
            self._busy.pop(queue, None)

    def _drop(self, queue: PartitionQueue, created_before_ms: int | None) -> list[ProducerBatch]:
        if queue.open is not None and (created_before_ms is None or queue.open.created_ms <= created_before_ms):
            self._close(queue, notify=False)
        dropped = []
        while queue.closed and (created_before_ms is None or queue.closed[0].created_ms <= created_before_ms):
            dropped += [queue.closed.popleft() for _ in range(queue.retried_together or 1)]
            queue.retried_together = 0
        if any(batch.sequence >= 0 for batch in dropped):
            dropped += self._begin_anew(queue)
        self._used -= sum(batch.size for batch in dropped)
        if not (queue.closed or queue.in_flight or queue.open):
            self._busy.pop(queue, None)
        return dropped
