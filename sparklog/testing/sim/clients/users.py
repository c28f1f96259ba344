"""The real `sparklog.client` in a simulation: producers, consumers and consumer groups, over the gRPC listener.

    UserProducer    sends many records at once: several batches and partitions per request, several requests in flight.
                    With acks=all, acknowledged records must last. With fewer acks, the checks only forbid values that
                    were never sent
    UserConsumer    reads one partition from its start. If the log starts later than its position, it goes on there
    UserGroup       consumers that share topics, by name or by pattern, with eager or cooperative rebalances, and some
                    with a group_instance_id. They are killed, or close, and start again. The group must be shown at
                    least all records that exist, also those of topics that were deleted and created again

Each life of a client is a process of its own, and a killed process runs no code. So nothing here uses `async with`:
the end of the block would never run.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from sparklog.base.errors import (
    DuplicateSequenceNumber,
    LogTruncation,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    SparklogError,
)
from sparklog.base.ids import TopicPartition
from sparklog.client.consumer.consumer import AsyncConsumer
from sparklog.client.producer.delivery import RecordMetadata
from sparklog.client.producer.producer import AsyncProducer
from sparklog.testing.sim.checks.history import (
    ClientOperation,
    History,
    LogStartLookup,
    OperationOutcome,
    Poll,
    PollResult,
    Send,
)
from sparklog.testing.sim.clients.workload import Report
from sparklog.testing.sim.clock import LoopClock
from sparklog.testing.sim.grpc import channels
from sparklog.testing.sim.loop import SimLoop, SimProcess
from sparklog.testing.sim.network import SimNetwork

REQUEST_TIMEOUT_MS = 2_500
DELIVERY_TIMEOUT_MS = 8_000
PATIENCE_MS = 20_000
"""The delivery timeout of producers. It is longer than sender.BEHIND_MS, so that they report records that they cannot
send in order as such, not as timed out.
"""
SESSION_TIMEOUT_MS = 3_000
LIFE_S = 4.0
"""The mean lifetime of a group's consumer in seconds, until the faults are over."""
EVERYTHING = 1 << 62
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "300",
}


class SimUser:
    """The owner of real clients: their name, their process, their random numbers, and their access to the network."""

    def __init__(self, name: str, loop: SimLoop, network: SimNetwork, bootstrap: Sequence[str], seed: str) -> None:
        self.name = name
        self.chance = random.Random(seed)
        self.process = SimProcess(name)
        self._loop = loop
        self._network = network
        self._bootstrap = list(bootstrap)

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments that every client gets."""
        return {
            "clock": LoopClock(self._loop),
            "random": random.Random(self.chance.random()),
            "open_channel": channels(self._network, self.name),
            "bootstrap_servers": self._bootstrap,
            "client_id": self.name,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "default_api_timeout_ms": DELIVERY_TIMEOUT_MS,
        }

    async def live(self, life: Coroutine[Any, Any, None], lasts_s: float | None = None) -> None:
        """Run `life` in a new process, and kill the process at the end of `life` or after `lasts_s` seconds.

        Raises what `life` raises.
        """
        self.process = process = SimProcess(self.name)
        task = process.context().run(lambda: self._loop.create_task(life))
        await asyncio.wait([task], timeout=lasts_s)
        if task.done():
            task.result()
        process.kill()
        self._network.break_connections(self.name)


class UserProducer:
    """A real producer that sends a few records at a time, each with a value of its own. Implements Worker."""

    def __init__(
        self,
        user: SimUser,
        history: History,
        partitions: Sequence[TopicPartition],
        report: Report,
        *,
        acks: str = "all",
        bursts: bool = False,
    ) -> None:
        """bursts: send batches of one record each, and all records of a moment to one partition, in few requests."""
        chance = user.chance
        self._user = user
        self._report = report
        self._history = history
        self._partitions = list(partitions)
        self._sent = 0
        self._config: dict[str, Any] = {
            "acks": acks,
            "linger_ms": chance.choice((0, 5, 100)),
            "batch_size": chance.choice((100, 300, 10_000)),
            "max_request_size": chance.choice((400, 4_000)),
            "compression_type": chance.choice(("none", "none", "lz4")),
            "delivery_timeout_ms": PATIENCE_MS,
            "max_block_ms": DELIVERY_TIMEOUT_MS,
            "enable_idempotence": acks == "all" and chance.random() < 0.8,
        }
        self._bursts = bursts
        if bursts:
            self._config |= {"batch_size": 1, "max_request_size": 1_500, "enable_idempotence": True}

    async def run(self, is_over: asyncio.Event) -> None:
        await self._user.live(self._work(is_over))

    async def _work(self, is_over: asyncio.Event) -> None:
        chance = self._user.chance
        producer = AsyncProducer(**self._user.options(), **self._config)
        while not is_over.is_set():
            await asyncio.sleep(chance.expovariate(2 if self._bursts else 3))
            partition = chance.choice(self._partitions)
            for _ in range(chance.choice((1, 3, 10)) * (1 + self._bursts)):
                await self._send(producer, partition if self._bursts else chance.choice(self._partitions))
        await producer.close()

    async def _send(self, producer: AsyncProducer, place: TopicPartition) -> None:
        topic, number = place
        value = f"{self._user.name}:{self._sent}"
        self._sent += 1
        is_idempotent = producer.config.enable_idempotence
        operation = self._history.begin(
            self._user.name,
            Send(partition=place, values=(value,), is_idempotent=is_idempotent),
            tries=1 if is_idempotent else 2,  # the client retries by itself
        )
        try:
            await producer.send(topic, value, partition=number, on_delivery=partial(self._note_delivery, operation))
        except SparklogError as error:
            self._history.end(operation, OperationOutcome.FAIL, str(error))

    def _note_delivery(
        self, operation: ClientOperation, metadata: RecordMetadata | None, error: SparklogError | None
    ) -> None:
        if metadata and self._config["acks"] == "all":
            self._history.end(operation, OperationOutcome.OK, metadata.offset if metadata.offset >= 0 else None)
        else:
            self._history.end(operation, OperationOutcome.INFO, str(error or metadata))
        if isinstance(error, OutOfOrderSequenceNumber | DuplicateSequenceNumber):
            self._report("sequence", f"{self._user.name}: {operation.action.values}: {error}")


class UserConsumer:
    """A real consumer that reads one partition from offset 0. Implements Worker."""

    def __init__(self, user: SimUser, history: History, partition: TopicPartition, report: Report) -> None:
        self.partition = partition
        self.position = 0
        self._user = user
        self._history = history
        self._report = report

    @property
    def name(self) -> str:
        """The name of the client in the history, and of its process."""
        return self._user.name

    async def run(self, is_over: asyncio.Event) -> None:
        await self._user.live(self._read(is_over.is_set))

    async def run_again_and_again(self, is_over: asyncio.Event) -> None:
        """Run one consumer after the other, each from offset 0 and for about a second."""
        chance = self._user.chance
        while not is_over.is_set():
            self.position = 0
            await self._user.live(self._read(is_over.is_set), chance.expovariate(1))

    async def drain(self, is_enough: Callable[[], bool], deadline: float) -> bool:
        """Read until `is_enough` or `deadline`, the loop's time in seconds. Return whether `is_enough` holds."""
        loop = asyncio.get_running_loop()
        await self._user.live(self._read(lambda: is_enough() or loop.time() > deadline))
        return is_enough()

    async def _read(self, is_enough: Callable[[], bool]) -> None:
        chance = self._user.chance
        config: dict[str, Any] = {
            "auto_offset_reset": "none",
            "max_partition_fetch_bytes": chance.choice((100, 1_000, 100_000)),
            "max_poll_records": chance.choice((1, 5, 500)),
        }
        consumer = AsyncConsumer(**self._user.options(), **config)
        consumer.assign([self.partition])
        consumer.seek(self.partition, self.position)
        while not is_enough():
            await self._poll(consumer)
        await consumer.close()

    async def _poll(self, consumer: AsyncConsumer) -> None:
        operation = self._history.begin(self.name, Poll(partition=self.partition, position=self.position))
        try:
            records = await consumer.poll(500)
        except OffsetOutOfRange as error:
            self._history.end(operation, OperationOutcome.FAIL, str(error))
            if isinstance(error, LogTruncation):
                self._report("truncation", f"{self.name}: {error}")
            await self._go_to_the_start(consumer)
            return
        except SparklogError as error:
            self._history.end(operation, OperationOutcome.FAIL, str(error))
            await asyncio.sleep(0.1)
            return
        shown = tuple((record.offset, (record.value or b"").decode()) for record in records)
        self.position = consumer.known_position(self.partition) or self.position
        self._history.end(operation, OperationOutcome.OK, PollResult(shown, EVERYTHING, 0, self.position))

    async def _go_to_the_start(self, consumer: AsyncConsumer) -> None:
        """Seek to the log's start, like auto_offset_reset="earliest"."""
        operation = self._history.begin(self.name, LogStartLookup(partition=self.partition))
        try:
            self.position = (await consumer.beginning_offsets([self.partition]))[self.partition]
        except SparklogError as error:
            self._history.end(operation, OperationOutcome.FAIL, str(error))
        else:
            self._history.end(operation, OperationOutcome.OK, self.position)
        consumer.seek(self.partition, self.position)


class UserGroup:
    """The records that the members of a group have received, taken together."""

    def __init__(
        self,
        name: str,
        history: History,
        *,
        topics: Sequence[str] | None = None,
        pattern: str | None = None,
        checked: Sequence[TopicPartition] = (),
    ) -> None:
        """Make a group that subscribes to `topics` or to `pattern`.

        The history records what each member is shown of the `checked` partitions. Other partitions may be deleted and
        created again meanwhile.
        """
        self.name = name
        self.topics = topics
        self.pattern = pattern
        self.shown: dict[TopicPartition, set[str]] = {}
        self._checked = frozenset(checked)
        self._history = history

    def show(self, member: str, partition: TopicPartition, records: Sequence[tuple[int, str]]) -> None:
        """Note that `member` was shown consecutive records of a partition, at least one, as (offset, value)."""
        self.shown.setdefault(partition, set()).update(value for _, value in records)
        if partition not in self._checked:
            return
        first, last = records[0][0], records[-1][0]
        operation = self._history.begin(member, Poll(partition=partition, position=first))
        self._history.end(operation, OperationOutcome.OK, PollResult(tuple(records), EVERYTHING, 0, last + 1))

    def reads(self, topic: str) -> bool:
        """Return whether the group subscribes to the topic."""
        return topic in self.topics if self.topics else re.search(self.pattern or "", topic) is not None

    def unseen(self, partition: TopicPartition, values: Mapping[int, str]) -> list[str]:
        """Return a text for each of `values`, by their offsets in the partition, that no member was shown."""
        shown = self.shown.get(partition, set())
        return [f"{partition}@{offset} = {value!r}" for offset, value in values.items() if value not in shown]


class UserMember:
    """A member of a group: one real consumer after the other, each in a process of its own. Implements Worker."""

    def __init__(self, user: SimUser, group: UserGroup, *, is_static: bool, strategy: str) -> None:
        self.owned: set[TopicPartition] = set()
        self._user = user
        self._group = group
        self._config: dict[str, Any] = {
            "group_id": group.name,
            "group_instance_id": user.name if is_static else None,
            "auto_offset_reset": "earliest",
            "partition_assignment_strategy": strategy,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": 400,
            "rebalance_timeout_ms": SESSION_TIMEOUT_MS,
            "metadata_max_age_ms": 1_000,
            "auto_commit_interval_ms": 700,
        }

    @property
    def name(self) -> str:
        """The name of the member in the history, and of its processes."""
        return self._user.name

    async def run(self, is_over: asyncio.Event) -> None:
        chance = self._user.chance
        while not is_over.is_set():
            lasts_s = chance.expovariate(1 / LIFE_S)
            ends = asyncio.get_running_loop().time() + lasts_s
            if chance.random() < 0.5:  # this consumer closes; the other one is killed
                await self._live(is_over, ends)
            else:
                await self._live(is_over, None, lasts_s)
            await asyncio.sleep(chance.uniform(0, 1))

    async def settle(self) -> None:
        """Be a member until cancelled, in a new life after each error."""
        while True:
            await self._live(asyncio.Event(), None)

    async def _live(self, is_over: asyncio.Event, ends: float | None, killed_after_s: float | None = None) -> None:
        try:
            await self._user.live(self._read(is_over, ends), killed_after_s)
        except SparklogError:
            await asyncio.sleep(self._user.chance.uniform(0.1, 0.5))
        self.owned = set()

    async def _read(self, is_over: asyncio.Event, ends: float | None) -> None:
        chance, group, loop = self._user.chance, self._group, asyncio.get_running_loop()
        config = {
            **self._config,
            "enable_auto_commit": chance.random() < 0.5,
            "max_poll_records": chance.choice((1, 5, 500)),
        }
        consumer = AsyncConsumer(**self._user.options(), **config)
        consumer.subscribe(group.topics, pattern=group.pattern, listener=self)
        while not is_over.is_set() and (ends is None or loop.time() < ends):
            await self._poll(consumer)
            if not config["enable_auto_commit"] and chance.random() < 0.5:
                await self._commit(consumer)
        await consumer.close()

    async def _poll(self, consumer: AsyncConsumer) -> None:
        shown: dict[TopicPartition, list[tuple[int, str]]] = {}
        try:
            for record in await consumer.poll(400):
                place = TopicPartition(record.topic, record.partition)
                shown.setdefault(place, []).append((record.offset, (record.value or b"").decode()))
        except SparklogError:
            await asyncio.sleep(0.1)
        for partition, records in shown.items():
            self._group.show(self.name, partition, records)

    async def _commit(self, consumer: AsyncConsumer) -> None:
        try:
            await consumer.commit()
        except SparklogError:
            await asyncio.sleep(0.1)

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Note partitions that the consumer has got (RebalanceListener)."""
        self.owned |= set(partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Note partitions that the consumer has given up, or lost (RebalanceListener)."""
        self.owned -= set(partitions)
