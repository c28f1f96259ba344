"""A producer with a transactional id, which speaks Kafka's protocol as one process of an application does.

protocol 1   AddPartitionsToTxn and AddOffsetsToTxn enrol; Produce 11, TxnOffsetCommit 3, EndTxn 3. The epoch stays
protocol 2   Produce 12 and TxnOffsetCommit 5 enrol, and each EndTxn 5 answers the next epoch (KIP-890)

Each method retries retriable errors until GIVE_UP_S. Then it raises `RequestRefused`, if its only request was refused,
or `OutcomeUnknown`.

A producer can also send the marker of a coordinator that was replaced, which must change nothing.

In protocol 1, a request that is late may end the next transaction of the same epoch; that is why KIP-890 exists. So a
producer of protocol 1 takes a new epoch after every doubt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, TypeVar

from sparklog.base.errors import ConcurrentTransactions, KafkaError, OperationNotAttempted, error_for
from sparklog.base.ids import TopicPartition
from sparklog.records.records import Record, write_records
from sparklog.testing.sim.clients.workload import FIRST_TIME_MS
from sparklog.testing.sim.kafka import SimKafka, raise_for

PRODUCE, FIND_COORDINATOR, INIT_PRODUCER_ID = 0, 10, 22
ADD_PARTITIONS, ADD_OFFSETS, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT, DESCRIBE_PRODUCERS = 24, 25, 26, 27, 28, 61
GROUP, TRANSACTION = 0, 1
ALL = -1
GIVE_UP_S = 6.0
SHORT_DELAY_S, LONGEST_DELAY_S = 0.3, 4.0
_VERSIONS = {
    False: {PRODUCE: 11, INIT_PRODUCER_ID: 4, END_TXN: 3, TXN_OFFSET_COMMIT: 3},
    True: {PRODUCE: 12, INIT_PRODUCER_ID: 5, END_TXN: 5, TXN_OFFSET_COMMIT: 5},
}
Result = TypeVar("Result")


class RequestRefused(Exception):
    """The request was refused, and no other was sent before: nothing was done."""


class OutcomeUnknown(Exception):
    """It is unknown whether one of the requests was carried out, or still will be."""


async def find_coordinator(client: SimKafka, key: str, kind: int) -> str:
    """Return the address of the coordinator of a group or of a transactional id. Raises KafkaError."""
    answer = await client.ask(
        client.anyone(), FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[key], timeout_ms=1_000
    )
    [found] = answer.coordinators
    raise_for(found.error_code)
    return f"{found.host}:{found.port}"


class TransactionalProducer:
    """The producer. `late` is a second connection, for requests that the network holds up."""

    def __init__(
        self, client: SimKafka, late: SimKafka, transactional_id: str, *, is_v2: bool, timeout_ms: int
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.is_v2 = is_v2
        self.timeout_ms = timeout_ms
        self._is_ready = False
        self._late = late
        self._versions = _VERSIONS[is_v2]
        self._producer_id = self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[str, int], str] = {}
        self._delayed: set[asyncio.Task[None]] = set()

    @property
    def is_ready(self) -> bool:
        """Whether a transaction may begin. If not, `initialise` first."""
        return self._is_ready

    def needs_epoch(self) -> None:
        """Let no transaction begin before `initialise`."""
        self._is_ready = False

    async def initialise(self, *, is_new_process: bool) -> None:
        """Get the id and the next epoch, which ends an open transaction.

        is_new_process: the request does not name the present id and epoch, and so fences their owner.
        """
        known = (-1, -1) if is_new_process else (self._producer_id, self._epoch)

        async def ask() -> Any:
            return await self._ask_coordinator(
                INIT_PRODUCER_ID, self._versions[INIT_PRODUCER_ID], transaction_timeout=self.timeout_ms,
                producer_id=known[0], producer_epoch=known[1],
            )  # fmt: skip

        self._is_ready = False
        given = await self._retry(ask)
        self._begin_epoch(given.producer_id, given.producer_epoch)
        self._is_ready = True

    async def begin(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin a transaction, and enrol partitions. In protocol 2, the coordinator learns of them from Produce."""
        if self.is_v2:
            return
        topics = [
            {"name": topic, "partitions": [name.partition for name in names]}
            for topic, names in groupby(sorted(partitions), lambda name: name.topic)
        ]

        async def ask() -> None:
            answer = await self.client.ask(
                await self._coordinator(), ADD_PARTITIONS, 3, v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self._producer_id, v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=topics,
            )  # fmt: skip
            _raise_first(
                part.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            )

        await self._retry(ask)

    async def send(self, partition: TopicPartition, value: str) -> None:
        """Write a record."""
        records = self._next_batch(partition, value)
        await self._retry(lambda: self._produce(self.client, partition, records, self._versions[PRODUCE]))

    def send_late(self, partition: TopicPartition, value: str) -> None:
        """Write a record with a request that the network holds up. Does not wait for the answer."""
        records, version = self._next_batch(partition, value), self._versions[PRODUCE]
        self._delay(lambda: self._produce(self._late, partition, records, version))
        self._is_ready = self.is_v2  # protocol 1 does not raise the epoch: the next sequence number is unknown

    async def repeat_marker(self, partition: TopicPartition) -> None:
        """Send the abort of a coordinator that does not know yet that it was replaced.

        The last marker in the partition shows that there is a later coordinator. That marker is committed if a record
        of the present transaction has been acknowledged there.
        """
        topics = [{"name": partition.topic, "partition_indexes": [partition.partition]}]
        with suppress(KafkaError):
            address, _ = await self._late.leader(partition)
            told = await self._late.ask(address, DESCRIBE_PRODUCERS, 0, topics=topics)
            found = told.topics[0].partitions[0]
            raise_for(found.error_code)
            last = [each.coordinator_epoch for each in found.active_producers if each.producer_id == self._producer_id]
            if last and last[0] > 0:
                marker = {
                    "producer_id": self._producer_id, "producer_epoch": self._epoch, "transaction_result": False,
                    "topics": topics, "coordinator_epoch": last[0] - 1,
                }  # fmt: skip
                await self._late.ask(address, WRITE_TXN_MARKERS, 1, markers=[marker])

    async def commit_offsets(
        self, group: str, member_id: str, generation: int, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Commit a group's offsets with the transaction, as this member of it."""
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": name.partition, "committed_offset": offsets[name],
                        "committed_leader_epoch": -1, "committed_metadata": None,
                    }
                    for name in names
                ],
            }
            for topic, names in groupby(sorted(offsets), lambda name: name.topic)
        ]  # fmt: skip
        if not self.is_v2:
            await self._retry(lambda: self._ask_coordinator(
                ADD_OFFSETS, 3, producer_id=self._producer_id, producer_epoch=self._epoch, group_id=group
            ))  # fmt: skip

        async def ask() -> None:
            answer = await self.client.ask(
                await self._coordinator(group, GROUP), TXN_OFFSET_COMMIT, self._versions[TXN_OFFSET_COMMIT],
                transactional_id=self.transactional_id, group_id=group, producer_id=self._producer_id,
                producer_epoch=self._epoch, generation_id=generation, member_id=member_id, group_instance_id=None,
                topics=topics,
            )  # fmt: skip
            _raise_first(part.error_code for topic in answer.topics for part in topic.partitions)

        await self._retry(ask)

    async def end(self, *, is_commit: bool, is_doubled: bool = False) -> None:
        """End the transaction. is_doubled: the network delivers the request a second time, earlier or later."""
        fields = {"producer_id": self._producer_id, "producer_epoch": self._epoch, "committed": is_commit}

        async def ask() -> Any:
            return await self._ask_coordinator(END_TXN, self._versions[END_TXN], **fields)

        if is_doubled and self.is_v2:
            self.end_late(is_commit=is_commit)
        answer = await self._retry(ask)
        if self.is_v2:
            self._begin_epoch(answer.producer_id, answer.producer_epoch)
            self._is_ready = True

    def end_late(self, *, is_commit: bool) -> None:
        """End the transaction with a request that the network holds up. Does not wait for the answer."""
        address = self._coordinators.get((self.transactional_id, TRANSACTION), self._late.anyone())
        fields = {"producer_id": self._producer_id, "producer_epoch": self._epoch, "committed": is_commit}
        version = self._versions[END_TXN]
        self._delay(lambda: self._late.ask(address, END_TXN, version, transactional_id=self.transactional_id, **fields))

    async def delivered(self) -> None:
        """Wait for the requests that the network holds up."""
        await asyncio.gather(*self._delayed)

    def _begin_epoch(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, epoch
        self._sequences = {}

    def _next_batch(self, partition: TopicPartition, value: str) -> bytes:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        now_ms = FIRST_TIME_MS + int(asyncio.get_running_loop().time() * 1000)
        record = Record(offset=0, timestamp_ms=now_ms, value=value.encode(), sequence=sequence)
        return bytes(
            write_records([record], producer_id=self._producer_id, producer_epoch=self._epoch, transactional=True)
        )

    async def _produce(self, client: SimKafka, partition: TopicPartition, records: bytes, version: int) -> None:
        try:
            address, _ = await client.leader(partition)
            answer = await client.ask(
                address, PRODUCE, version, transactional_id=self.transactional_id, acks=ALL, timeout=2_000,
                topic_data=[
                    {
                        "name": partition.topic,
                        "partition_data": [{"index": partition.partition, "records": records}],
                    }
                ],
            )  # fmt: skip
            raise_for(answer.responses[0].partition_responses[0].error_code)
        except KafkaError:
            client.forget_leader(partition)
            raise

    async def _ask_coordinator(self, key: int, version: int, **fields: Any) -> Any:
        answer = await self.client.ask(
            await self._coordinator(), key, version, transactional_id=self.transactional_id, **fields
        )
        raise_for(answer.error_code)
        return answer

    async def _coordinator(self, key: str = "", kind: int = TRANSACTION) -> str:
        place = key or self.transactional_id, kind
        if place not in self._coordinators:
            self._coordinators[place] = await find_coordinator(self.client, *place)
        return self._coordinators[place]

    async def _retry(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        loop = asyncio.get_running_loop()
        deadline, is_doubtful = loop.time() + GIVE_UP_S, False
        while True:
            try:
                result = await attempt()
            except KafkaError as error:
                if not error.retriable and not is_doubtful:
                    self._is_ready = False
                    raise RequestRefused(repr(error)) from error
                if not isinstance(error, ConcurrentTransactions):  # which says that nothing was done
                    is_doubtful = True
                    self._coordinators.clear()
                if not error.retriable or loop.time() > deadline:
                    self._is_ready = False
                    raise OutcomeUnknown(repr(error)) from error
                await self.client.back_off()
            else:
                if is_doubtful and not self.is_v2:
                    self._is_ready = False
                return result

    def _delay(self, ask: Callable[[], Awaitable[Any]]) -> None:
        delay_s = self.client.chance.uniform(0, self.client.chance.choice((SHORT_DELAY_S, LONGEST_DELAY_S)))

        async def ask_late() -> None:
            await asyncio.sleep(delay_s)
            try:
                await ask()
            except KafkaError:
                return  # its sender ignores the outcome

        task = asyncio.get_running_loop().create_task(ask_late())
        self._delayed.add(task)
        task.add_done_callback(self._delayed.discard)


def _raise_first(codes: Any) -> None:
    """Raise the error that made the coordinator refuse all, if there is one."""
    errors = [error_for(int(code), "") for code in codes if code]
    errors.sort(key=lambda error: isinstance(error, OperationNotAttempted))
    if errors:
        raise errors[0]
