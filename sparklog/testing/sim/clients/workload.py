"""The work of the clients of a simulated cluster. A history records each operation.

    producer    sends small batches with acks=all, one after the other. An idempotent producer retries until it has an
                answer, and takes a new producer id after it gives up. Another one tries once, or retries and may then
                write a batch twice
    consumer    reads each partition from its start, from the leader or at times from any replica
    group       commits the position of a consumer, and at times fetches the committed offset
    admin       creates topics, adds partitions, deletes topics, moves partitions, elects leaders, changes
                configurations (clients/admin.py)

The outcome FAIL means that a batch was certainly not written: it was never sent, or every broker refused it before it
appended anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from sparklog.base.errors import (
    FencedLeaderEpoch,
    KafkaError,
    LeaderNotAvailable,
    NotEnoughReplicas,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    UnknownLeaderEpoch,
)
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import fetch, group_apis, init_producer_id, list_offsets, offset_commit, produce
from sparklog.group.requests import OffsetCommit, OffsetFetch, OffsetToCommit
from sparklog.log.log import Log
from sparklog.records.batch import BatchHeader, read_header
from sparklog.records.records import Record, read_records, write_records
from sparklog.testing.sim.checks.history import (
    ClientOperation,
    Commit,
    History,
    LogStartLookup,
    OperationOutcome,
    Poll,
    PollResult,
    ReadCommit,
    Send,
)
from sparklog.testing.sim.clients.client import BACKOFF_S, SimClient

NOT_WRITTEN = (NotEnoughReplicas, LeaderNotAvailable, UnknownLeaderEpoch, FencedLeaderEpoch)
"""Errors after which the batch is not in the log: a broker returns them before it appends."""
GIVE_UP_S = 8.0
MAX_READ = 1 << 30
FIRST_TIME_MS = 1_700_000_000_000
"""The time of all clocks at the start of a run."""
Report = Callable[[str, str], None]


class SimProducer:
    """A producer that sends one batch at a time. Implements Worker."""

    def __init__(
        self,
        client: SimClient,
        history: History,
        partitions: list[TopicPartition],
        report: Report,
        *,
        is_idempotent: bool,
        tries_again: bool,
        says_epochs: bool = False,
    ) -> None:
        self._client = client
        self._history = history
        self._partitions = partitions
        self._report = report
        self._is_idempotent = is_idempotent
        self._tries_again = tries_again or is_idempotent
        self._says_epochs = says_epochs
        self._sent = 0
        self._producer_id = -1
        self._timestamp_ms = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def run(self, is_over: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        while not is_over.is_set():
            await asyncio.sleep(self._client.chance.expovariate(4))
            if self._is_idempotent and self._producer_id < 0:
                await self._begin()
                continue
            partition = self._client.chance.choice(self._partitions)
            count = self._client.chance.choice((1, 1, 2, 5))
            values = tuple(f"{self._client.name}:{self._sent + number}" for number in range(count))
            self._sent += count
            send = Send(partition=partition, values=values, is_idempotent=self._is_idempotent)
            operation = self._history.begin(self._client.name, send)
            self._timestamp_ms = FIRST_TIME_MS + int(operation.invoked_at * 1000)
            await self._send(operation, send, loop.time() + GIVE_UP_S)

    async def _begin(self) -> None:
        try:
            answer = await self._client.ask_any(init_producer_id.API, init_producer_id.InitProducerIdRequest())
        except KafkaError:
            await self._client.back_off()
            return
        self._producer_id = answer.producer_id
        self._sequences = {}

    async def _send(self, operation: ClientOperation, send: Send, deadline: float) -> None:
        tries, is_in_doubt = 0, False
        while True:
            try:
                tries += 1
                offset, epoch = await self._send_once(send)
            except KafkaError as error:
                is_in_doubt |= not isinstance(error, NOT_WRITTEN)
                self._client.forget_leader(send.partition)
                if isinstance(error, OutOfOrderSequenceNumber):
                    self._report("sequence", f"{self._client.name} sent {send.values} in order, but: {error}")
                elif self._tries_again and asyncio.get_running_loop().time() < deadline:
                    await self._client.back_off()
                    continue
                outcome = OperationOutcome.INFO if is_in_doubt else OperationOutcome.FAIL
                self._history.end(operation, outcome, str(error), tries=tries)
                self._producer_id = -1  # the next sequence number is unknown
                return
            self._history.end(operation, OperationOutcome.OK, offset, tries=tries, leader_epoch=epoch)
            self._sequences[send.partition] = self._sequences.get(send.partition, 0) + len(send.values)
            return

    async def _send_once(self, send: Send) -> tuple[int, int | None]:
        """Send once. Return the answered offset, and the leader epoch that the request named. Raises KafkaError."""
        address, epoch = await self._client.leader(send.partition)
        says_epoch = self._says_epochs or self._client.chance.random() < 0.5
        part = produce.PartitionProduce(
            topic=send.partition.topic,
            partition=send.partition.partition,
            data=self._batch(send),
            current_leader_epoch=epoch if says_epoch else None,
        )
        request = produce.ProduceRequest(partitions=[part], creates_topics=False, timeout_ms=2_000)
        result = (await self._client.ask(address, produce.API, request)).partitions[0]
        if result.error:
            raise result.error
        return int(result.base_offset), part.current_leader_epoch

    def _batch(self, send: Send) -> bytearray:
        sequence = self._sequences.get(send.partition, 0) if self._is_idempotent else -1
        records = [
            Record(offset=number, timestamp_ms=self._timestamp_ms, value=value.encode(), sequence=sequence)
            for number, value in enumerate(send.values)
        ]
        return write_records(records, producer_id=self._producer_id, producer_epoch=0 if self._is_idempotent else -1)


class SimConsumer:
    """A consumer that reads one partition from offset 0. Implements Worker."""

    def __init__(
        self, client: SimClient, history: History, partition: TopicPartition, *, from_followers: float = 0.0
    ) -> None:
        self.partition = partition
        self.position = 0
        self.high_watermark = -1
        self._client = client
        self._history = history
        self._from_followers = from_followers

    @property
    def name(self) -> str:
        """The name of the client in the history."""
        return self._client.name

    async def run(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await self.poll()

    async def drain(self, is_enough: Callable[[], bool], deadline: float) -> bool:
        """Read from leaders until `is_enough`. Return False if the loop's time passes `deadline` (seconds) before."""
        self._from_followers = 0.0
        while not is_enough():
            if asyncio.get_running_loop().time() > deadline:
                return False
            await self.poll()
        return True

    async def poll(self) -> None:
        """Fetch once, record the result in the history, and move the position."""
        operation = self._history.begin(self.name, Poll(partition=self.partition, position=self.position))
        try:
            polled = await self._fetch()
        except OffsetOutOfRange as error:
            self._history.end(operation, OperationOutcome.FAIL, str(error))
            await self._go_to_the_start()
            return
        except KafkaError as error:
            self._history.end(operation, OperationOutcome.FAIL, str(error))
            self._client.forget_leader(self.partition)
            await self._client.back_off()
            return
        self._history.end(operation, OperationOutcome.OK, polled)
        self.position = polled.next_offset
        self.high_watermark = polled.high_watermark

    async def _go_to_the_start(self) -> None:
        """Move the position to the log's start, like auto.offset.reset=earliest."""
        query = list_offsets.PartitionOffsetQuery(
            topic=self.partition.topic, partition=self.partition.partition, position=list_offsets.EARLIEST
        )
        request = list_offsets.ListOffsetsRequest(partitions=[query])
        operation = self._history.begin(self.name, LogStartLookup(partition=self.partition))
        try:
            address, _ = await self._client.leader(self.partition)
            found = (await self._client.ask(address, list_offsets.API, request)).partitions[0]
            if found.error:
                raise found.error
            self.position = found.offset
            self._history.end(operation, OperationOutcome.OK, found.offset)
        except KafkaError as error:
            self._history.end(operation, OperationOutcome.FAIL, str(error))
            self._client.forget_leader(self.partition)
        await self._client.back_off()

    async def _fetch(self) -> PollResult:
        chance = self._client.chance
        epoch: int | None = None
        if chance.random() < self._from_followers:
            address = await self._client.some_replica(self.partition)
        else:
            address, epoch = await self._client.leader(self.partition)
        part = fetch.PartitionFetch(
            topic=self.partition.topic,
            partition=self.partition.partition,
            fetch_offset=self.position,
            max_bytes=chance.choice((100, 1_000, 100_000)),
            current_leader_epoch=epoch if chance.random() < 0.5 else None,
        )
        wait_ms = chance.choice((0, 500, 500))
        request = fetch.FetchRequest(max_wait_ms=wait_ms, max_bytes=1 << 20, partitions=[part])
        result = (await self._client.ask(address, fetch.API, request)).partitions[0]
        if result.error:
            raise result.error
        records = tuple(_read(result.slice.read() if result.slice else b"", self.position))
        next_offset = max(self.position, result.next_offset)
        if not records:
            await asyncio.sleep(chance.uniform(0, BACKOFF_S))
        return PollResult(records, result.high_watermark, result.log_start_offset, next_offset)


class SimGroup:
    """Commits a consumer's position for a group, or only fetches the committed offset. Implements Worker."""

    def __init__(self, client: SimClient, history: History, group: str, consumer: SimConsumer) -> None:
        self._client = client
        self._history = history
        self._group = group
        self._consumer = consumer
        self._committed = -1

    async def run(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await asyncio.sleep(self._client.chance.expovariate(1.5))
            position = self._consumer.position
            if position > self._committed:
                await self._commit(position)
            else:
                await self.read()

    async def watch(self, is_over: asyncio.Event) -> None:
        """Only fetch the committed offset, while another client commits."""
        while not is_over.is_set():
            await asyncio.sleep(self._client.chance.expovariate(3))
            await self.read()

    async def _commit(self, offset: int) -> None:
        self._committed = offset
        partition = self._consumer.partition
        operation = self._history.begin(
            self._client.name, Commit(group=self._group, partition=partition, offset=offset)
        )
        request = OffsetCommit(group_id=self._group, offsets=[OffsetToCommit(partition=partition, offset=offset)])

        async def commit() -> None:
            address = await self._client.coordinator(self._group)
            error = (await self._client.ask(address, offset_commit.API, request, 6_000)).errors[partition]
            if error:
                raise error

        await self._record(operation, commit)

    async def read(self, *, is_current: bool = False) -> bool:
        """Fetch the committed offset. Return whether the coordinator answered.

        Set `is_current` when no replaced coordinator can answer any more. The check then accepts no outdated offset.
        """
        partition = self._consumer.partition
        action = ReadCommit(group=self._group, partition=partition, is_current=is_current)
        operation = self._history.begin(self._client.name, action)

        async def read() -> int:
            address = await self._client.coordinator(self._group)
            request = OffsetFetch(group_id=self._group, partitions=[partition])
            answer = await self._client.ask(address, group_apis.OFFSET_FETCH, request)
            if error := answer.error or answer.offsets[0].error:
                raise error
            return int(answer.offsets[0].offset)

        await self._record(operation, read)
        return operation.is_ok

    async def _record(self, operation: ClientOperation, ask: Callable[[], Awaitable[Any]]) -> None:
        try:
            result = await ask()
        except KafkaError as error:
            self._history.end(operation, OperationOutcome.INFO, str(error))
            await self._client.back_off()
        else:
            self._history.end(operation, OperationOutcome.OK, result)


def batches_of(data: bytes) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yield the header and the records of each batch in `data`."""
    at = 0
    while at < len(data):
        header = read_header(data, at)
        yield header, read_records(data, at)
        at += header.size


def bytes_of(log: Log, offset: int, end_offset: int) -> bytes:
    """Return the bytes of the batches from `offset` up to `end_offset`. The first one may begin before `offset`."""
    pieces = []
    while offset < end_offset:
        piece = log.read(offset, MAX_READ, max_offset=end_offset)
        if not piece.size:
            break
        pieces.append(piece.read())
        offset = piece.next_offset
    return b"".join(pieces)


def _read(data: bytes, position: int) -> Iterator[tuple[int, str]]:
    for _, records in batches_of(data):
        for record in records:
            if record.offset >= position:
                yield record.offset, (record.value or b"").decode()


def values_of(data: bytes, from_offset: int = 0) -> dict[int, str]:
    """Return the values in some batches at `from_offset` and above, by their offsets."""
    return dict(_read(data, from_offset))


def epochs_of(data: bytes) -> dict[int, int]:
    """Return the leader epochs in some batches, by their records' offsets."""
    return {record.offset: header.leader_epoch for header, records in batches_of(data) for record in records}


def times_of(data: bytes) -> dict[int, int]:
    """Return the timestamps in ms in some batches, by their offsets."""
    return {record.offset: record.timestamp_ms for _, records in batches_of(data) for record in records}
