"""Clients of Kafka's wire protocol in a simulation. They work as Kafka's own clients do.

WireProducer   sends requests for several partitions, with up to five in flight. It is idempotent: it resends what is
               not acknowledged, in order and with the same sequence numbers. After it gives up a batch, it goes on
               with the next epoch of its producer id
WireConsumer   reads all partitions of a broker in one fetch session, whose requests name only what has changed. It
               sends the epoch that it read last, and at times looks up the log start or the first offset of a timestamp
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from sparklog.base.errors import (
    KafkaError,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    error_for,
)
from sparklog.base.ids import TopicPartition
from sparklog.records.records import Record, write_records
from sparklog.testing.sim.checks.history import (
    ClientOperation,
    EpochLookup,
    History,
    LogStartLookup,
    OffsetLookup,
    OperationOutcome,
    Poll,
    PollResult,
    Send,
)
from sparklog.testing.sim.clients.workload import FIRST_TIME_MS, Report, batches_of
from sparklog.testing.sim.kafka import SimKafka, raise_for

PRODUCE, FETCH, LIST_OFFSETS, INIT_PRODUCER_ID = 0, 1, 2, 22
ALL = -1
EARLIEST = -2
MAX_IN_FLIGHT = 5
GIVE_UP_S = 8.0
FIRST_WITH_IDS = 13


@dataclass(slots=True, kw_only=True, eq=False)
class _ProducerBatch:
    send: Send
    operation: ClientOperation
    timestamp_ms: int
    until: float
    sequence: int = -1
    is_doubtful: bool = False


@dataclass(slots=True)
class _PartitionQueue:
    """The batches of a partition that are not acknowledged yet. The first `sent` of them await an answer."""

    batches: deque[_ProducerBatch] = field(default_factory=deque)
    sent: int = 0
    next_sequence: int = 0


class WireProducer:
    """An idempotent producer that sends until `is_over` is set, and then until its queues are empty.

    Implements Worker.
    """

    def __init__(self, client: SimKafka, history: History, partitions: Sequence[TopicPartition]) -> None:
        self._client = client
        self._history = history
        self._version = client.chance.choice((9, 12, 13))
        self._queues = {partition: _PartitionQueue() for partition in partitions}
        self._producer_id = self._epoch = -1
        self._is_epoch_over = False
        self._values = 0
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, is_over: asyncio.Event) -> None:
        chance = self._client.chance
        while not is_over.is_set() or any(queue.batches for queue in self._queues.values()):
            await asyncio.sleep(chance.expovariate(20))
            if not is_over.is_set() and chance.random() < 0.3:
                for _ in range(chance.choice((1, 2, 6))):
                    self._add(chance.choice(list(self._queues)))
            self._expire()
            if self._is_epoch_over and not self._under_way:
                self._begin_epoch()
            if self._producer_id < 0:
                await self._ask_for_id()
            elif not self._is_epoch_over and len(self._under_way) < MAX_IN_FLIGHT:
                await self._send_some()

    def _add(self, partition: TopicPartition) -> None:
        count = self._client.chance.choice((1, 2, 3))
        values = tuple(f"{self._client.name}:{self._values + number}" for number in range(count))
        self._values += count
        send = Send(partition=partition, values=values, is_idempotent=True)
        now = asyncio.get_running_loop().time()
        batch = _ProducerBatch(
            send=send,
            operation=self._history.begin(self._client.name, send),
            timestamp_ms=FIRST_TIME_MS + int(now * 1000),
            until=now + GIVE_UP_S,
        )
        self._queues[partition].batches.append(batch)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for queue in self._queues.values():
            if queue.batches and not queue.sent and queue.batches[0].until < now:
                self._give_up(queue, queue.batches[0], "its time is up")

    def _give_up(self, queue: _PartitionQueue, batch: _ProducerBatch, why: str) -> None:
        """Give up a batch and the epoch: the batches behind it need new sequence numbers."""
        queue.batches.remove(batch)
        self._history.end(batch.operation, OperationOutcome.INFO if batch.is_doubtful else OperationOutcome.FAIL, why)
        self._is_epoch_over = True

    def _begin_epoch(self) -> None:
        """Raise the producer epoch without a request, as a producer without transactions does (KIP-360)."""
        self._is_epoch_over = False
        self._epoch += 1
        for queue in self._queues.values():
            queue.next_sequence = queue.sent = 0
            for batch in queue.batches:
                batch.sequence = -1
        if any(batch.is_doubtful for queue in self._queues.values() for batch in queue.batches):
            self._give_up_doubtful()

    def _give_up_doubtful(self) -> None:
        """Give up all batches that may be in the log already: with a new epoch they would be written twice."""
        for queue in self._queues.values():
            for batch in [each for each in queue.batches if each.is_doubtful]:
                queue.batches.remove(batch)
                self._history.end(batch.operation, OperationOutcome.INFO, "given up with the epoch")

    async def _ask_for_id(self) -> None:
        partition = self._client.chance.choice(list(self._queues))
        try:
            address, _ = await self._client.leader(partition)
            given = await self._client.ask(
                address, INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=0, producer_id=-1,
                producer_epoch=-1,
            )  # fmt: skip
            raise_for(given.error_code)
        except KafkaError:
            self._client.forget_leader(partition)
            return
        self._producer_id, self._epoch = given.producer_id, given.producer_epoch

    async def _send_some(self) -> None:
        """Send one request to a random leader, with one batch of each of its partitions that has one to send."""
        leaders: dict[str, list[TopicPartition]] = {}
        for partition, queue in self._queues.items():
            if queue.sent < len(queue.batches):
                try:
                    leaders.setdefault((await self._client.leader(partition))[0], []).append(partition)
                except KafkaError:
                    continue
        if not leaders or self._is_epoch_over:
            return
        address = self._client.chance.choice(sorted(leaders))
        chosen = {}
        for partition in leaders[address]:
            queue = self._queues[partition]
            if queue.sent < len(queue.batches):
                chosen[partition] = self._take_batch(queue)
        task = asyncio.get_running_loop().create_task(self._request(address, chosen))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _take_batch(self, queue: _PartitionQueue) -> _ProducerBatch:
        batch = queue.batches[queue.sent]
        queue.sent += 1
        batch.is_doubtful = True
        if batch.sequence < 0:
            batch.sequence = queue.next_sequence
            queue.next_sequence += len(batch.send.values)
        return batch

    async def _request(self, address: str, chosen: dict[TopicPartition, _ProducerBatch]) -> None:
        errors: dict[TopicPartition, KafkaError | int]
        try:
            answer = await self._client.ask(
                address, PRODUCE, self._version, transactional_id=None, acks=ALL, timeout=2_000,
                topic_data=self._topics(chosen),
            )  # fmt: skip
        except KafkaError as error:
            errors = dict.fromkeys(chosen, error)
        else:
            errors = {
                name: error_for(int(part.error_code), "") if part.error_code else part.base_offset
                for name, part in self._partition_answers(answer, chosen)
            }
        for partition, batch in chosen.items():
            self._settle(self._queues[partition], batch, errors[partition])

    def _topics(self, chosen: dict[TopicPartition, _ProducerBatch]) -> list[dict[str, Any]]:
        found = []
        for topic, names in groupby(sorted(chosen), lambda name: name.topic):
            key = {"topic_id": self._client.topic_ids[topic]} if self._version >= FIRST_WITH_IDS else {"name": topic}
            parts = [{"index": name.partition, "records": self._bytes_of(chosen[name])} for name in names]
            found.append({**key, "partition_data": parts})
        return found

    def _partition_answers(self, answer: Any, chosen: Iterable[TopicPartition]) -> Iterable[tuple[TopicPartition, Any]]:
        names = {self._client.topic_ids[name.topic]: name.topic for name in chosen}
        for topic in answer.responses:
            name = names[topic.topic_id] if self._version >= FIRST_WITH_IDS else topic.name
            for part in topic.partition_responses:
                yield TopicPartition(name, part.index), part

    def _bytes_of(self, batch: _ProducerBatch) -> bytes:
        records = [
            Record(offset=number, timestamp_ms=batch.timestamp_ms, value=value.encode(), sequence=batch.sequence)
            for number, value in enumerate(batch.send.values)
        ]
        return bytes(write_records(records, producer_id=self._producer_id, producer_epoch=self._epoch))

    def _settle(self, queue: _PartitionQueue, batch: _ProducerBatch, outcome: KafkaError | int) -> None:
        if batch not in queue.batches:
            return  # it was given up with its epoch
        if isinstance(outcome, int):
            self._history.end(batch.operation, OperationOutcome.OK, outcome if outcome >= 0 else None)
            queue.batches.remove(batch)
            queue.sent = max(0, queue.sent - 1)
            return
        batch.is_doubtful = True
        self._client.forget_leader(batch.send.partition)
        queue.sent = 0  # resend this batch and all batches behind it
        is_lost = isinstance(outcome, OutOfOrderSequenceNumber) and queue.batches[0] is batch
        if is_lost or (not outcome.retriable and not isinstance(outcome, OutOfOrderSequenceNumber)):
            self._give_up(queue, batch, str(outcome))


MOST_RESTARTS = 5
"""The start of a log may move on while a client begins there, but not so often."""


class WireConsumer:
    """A consumer that reads all partitions from offset 0. Implements Worker."""

    def __init__(
        self, client: SimKafka, history: History, partitions: Sequence[TopicPartition], report: Report
    ) -> None:
        self.positions = dict.fromkeys(partitions, 0)
        self._client = client
        self._history = history
        self._report = report
        self._version = client.chance.choice((7, 11, 12, 13, 16))
        self._epochs = dict.fromkeys(partitions, -1)
        self._restarts: Counter[TopicPartition] = Counter()
        """By partition, the number of offsets out of range in a row, each right after a seek to the start."""
        self._sessions: dict[str, _FetchSession] = {}
        self._lookups = 0
        self._committed_to = dict.fromkeys(partitions, 0)
        """The highest high watermark of each partition in the answers so far."""

    @property
    def name(self) -> str:
        """The name of the client in the history."""
        return self._client.name

    async def run(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await self.poll()
            if self._client.chance.random() < 0.1:
                name = self._client.chance.choice(list(self.positions))
                self._lookups += 1
                await (self._look_up(name) if self._lookups % 2 else self._look_up_start(name))

    async def poll(self) -> None:
        """Send one fetch request to a random leader, for all partitions that it leads."""
        chance = self._client.chance
        led: dict[str, dict[TopicPartition, int]] = {}
        for partition in self.positions:
            try:
                address, epoch = await self._client.leader(partition)
            except KafkaError:
                continue
            led.setdefault(address, {})[partition] = epoch
        if not led:
            await asyncio.sleep(chance.uniform(0.05, 0.2))
            return
        address = chance.choice(sorted(led))
        await self._fetch(address, led[address])

    async def _fetch(self, address: str, epochs: dict[TopicPartition, int]) -> None:
        session = self._sessions.setdefault(address, _FetchSession())
        wanted = {name: (self.positions[name], epochs[name], self._epochs[name]) for name in epochs}
        polls = {
            name: self._history.begin(self.name, Poll(partition=name, position=self.positions[name])) for name in wanted
        }
        try:
            answer = await self._client.ask(
                address, FETCH, self._version, max_wait=self._client.chance.choice((0, 300)), min_bytes=1,
                max_bytes=self._client.chance.choice((200, 100_000)), isolation_level=0, session_id=session.id,
                session_epoch=session.epoch, topics=self._topics(session.changes(wanted)),
                forgotten_topics_data=self._forgotten(session.forget(wanted)), rack_id="", cluster_id=None,
                replica_id=-1,
            )  # fmt: skip
            raise_for(answer.error_code)
        except KafkaError as error:
            del self._sessions[address]
            for operation in polls.values():
                self._history.end(operation, OperationOutcome.FAIL, str(error))
            for name in wanted:
                self._client.forget_leader(name)
            return
        session.answered(answer.session_id, wanted)
        for name, part in self._partition_answers(answer):
            if name in polls:
                await self._record_poll(name, part, polls.pop(name))
        for operation in polls.values():
            self._history.end(operation, OperationOutcome.FAIL, "nothing new")
        await asyncio.sleep(self._client.chance.uniform(0, 0.05))

    def _topics(self, wanted: dict[TopicPartition, tuple[int, int, int]]) -> list[dict[str, Any]]:
        return [
            {
                **self._key(topic),
                "partitions": [
                    {
                        "partition": name.partition, "fetch_offset": wanted[name][0],
                        "current_leader_epoch": wanted[name][1], "last_fetched_epoch": wanted[name][2],
                        "log_start_offset": -1, "partition_max_bytes": 1_000,
                    }
                    for name in names
                ],
            }
            for topic, names in groupby(sorted(wanted), lambda name: name.topic)
        ]  # fmt: skip

    def _forgotten(self, names: Iterable[TopicPartition]) -> list[dict[str, Any]]:
        return [
            {**self._key(topic), "partitions": [name.partition for name in each]}
            for topic, each in groupby(sorted(names), lambda name: name.topic)
        ]

    def _key(self, topic: str) -> dict[str, Any]:
        by_id = self._version >= FIRST_WITH_IDS
        return {"topic_id": self._client.topic_ids[topic]} if by_id else {"topic": topic}

    def _partition_answers(self, answer: Any) -> Iterable[tuple[TopicPartition, Any]]:
        names = {found: name for name, found in self._client.topic_ids.items()}
        for topic in answer.responses:
            name = names[topic.topic_id] if self._version >= FIRST_WITH_IDS else topic.topic
            for part in topic.partitions:
                yield TopicPartition(name, part.partition_index), part

    async def _record_poll(self, name: TopicPartition, part: Any, operation: ClientOperation) -> None:
        if part.error_code:
            error = error_for(int(part.error_code), str(name))
            self._history.end(operation, OperationOutcome.FAIL, str(error))
            self._client.forget_leader(name)
            if isinstance(error, OffsetOutOfRange):
                self._restarts[name] += await self._go_to_the_start(name)
                if self._restarts[name] == MOST_RESTARTS:
                    self._report("truncation", f"{self.name} is never in range of {name}: {self.positions[name]}")
            return
        del self._restarts[name]
        diverging = getattr(part, "diverging_epoch", None)
        if diverging is not None and diverging.end_offset >= 0 and diverging.epoch >= 0:
            self._report("truncation", f"{self.name} had read {name} to {self.positions[name]}: {diverging}")
            self._history.end(operation, OperationOutcome.FAIL, "diverging")
            self.positions[name], self._epochs[name] = min(self.positions[name], diverging.end_offset), -1
            return
        position, records = self.positions[name], []
        for header, found in batches_of(part.records or b""):
            records += [
                (record.offset, (record.value or b"").decode()) for record in found if record.offset >= position
            ]
            self.positions[name] = max(self.positions[name], header.last_offset + 1)
            self._epochs[name] = header.leader_epoch
        self._committed_to[name] = max(self._committed_to[name], part.high_watermark)
        polled = PollResult(tuple(records), part.high_watermark, 0, self.positions[name])
        self._history.end(operation, OperationOutcome.OK, polled)

    async def _go_to_the_start(self, name: TopicPartition) -> bool:
        """Continue at the start of the log. Return whether a broker has answered it."""
        operation = self._history.begin(self.name, LogStartLookup(partition=name))
        try:
            found = await self._list_offsets(name, EARLIEST)
        except KafkaError as error:
            self._history.end(operation, OperationOutcome.FAIL, str(error))
            self._epochs[name] = -1
            return False
        self._history.end(operation, OperationOutcome.OK, found.offset)
        self.positions[name], self._epochs[name] = found.offset, found.leader_epoch
        return True

    async def _look_up(self, name: TopicPartition) -> None:
        now = asyncio.get_running_loop().time()
        timestamp = FIRST_TIME_MS + int(self._client.chance.uniform(0, now) * 1000)
        operation = self._history.begin(self.name, OffsetLookup(partition=name, timestamp_ms=timestamp))
        try:
            found = await self._list_offsets(name, timestamp)
            self._history.end(operation, OperationOutcome.OK, (found.offset, found.timestamp))
        except KafkaError as error:
            self._history.end(operation, OperationOutcome.FAIL, str(error))

    async def _look_up_start(self, name: TopicPartition) -> None:
        with suppress(KafkaError):
            await self._list_offsets(name, EARLIEST)

    async def _list_offsets(self, name: TopicPartition, timestamp: int) -> Any:
        """Return a partition's answer: offset, its timestamp in ms and leader epoch; -1 for each that does not exist.

        Raises KafkaError.
        """
        committed_to = self._committed_to[name]
        try:
            address, epoch = await self._client.leader(name)
            part = {"partition_index": name.partition, "current_leader_epoch": epoch, "timestamp": timestamp}
            answer = await self._client.ask(
                address, LIST_OFFSETS, 6, replica_id=-1, isolation_level=0,
                topics=[{"name": name.topic, "partitions": [part]}],
            )  # fmt: skip
            found = answer.topics[0].partitions[0]
            raise_for(found.error_code)
        except KafkaError:
            self._client.forget_leader(name)
            raise
        if 0 <= found.offset < committed_to:  # a record that is not committed yet may be replaced by a later leader's
            lookup = self._history.begin(self.name, EpochLookup(partition=name))
            self._history.end(lookup, OperationOutcome.OK, (found.offset, found.leader_epoch))
        return found


class _FetchSession:
    """The client's state of a fetch session (KIP-227)."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self._known: dict[TopicPartition, tuple[int, int, int]] = {}

    def changes(self, wanted: dict[TopicPartition, tuple[int, int, int]]) -> dict[TopicPartition, tuple[int, int, int]]:
        """Return the partitions that the next request has to name: all in a new session, else the changed ones."""
        return {name: each for name, each in wanted.items() if not self.id or self._known.get(name) != each}

    def forget(self, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [name for name in self._known if name not in set(wanted)] if self.id else []

    def answered(self, session_id: int, wanted: dict[TopicPartition, tuple[int, int, int]]) -> None:
        self._known = dict(wanted)
        self.epoch = self.epoch + 1 if session_id else 0
        self.id = session_id
