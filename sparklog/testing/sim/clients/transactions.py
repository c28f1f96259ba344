"""Applications with transactions in a simulation, and the checks once all faults are over.

TransactionWriter   writes numbered values to several partitions of two topics, and commits or aborts. At times a
                    request of a transaction that it aborts is late, the end of one arrives twice, the process is killed
                    in the middle, it is so slow that the transaction times out, or a coordinator that was replaced
                    repeats a marker
Copier              a member of a group that copies committed records to another topic, and commits the offsets in the
                    same transaction (KIP-447). At times it aborts, pauses until another member has its partitions, or
                    is killed while its offsets are pending
SinkQuery           writes batches to a sink (clients/sinks.py)
TransactionReader   reads all of that, at either isolation level (clients/transaction_readers.py)

In the end some writers leave a transaction open, which its coordinator must abort. If clocks jump, the transaction's
start may be an hour ahead of the coordinator's clock, so no writer leaves one open then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.testing.sim.checks.checker import Anomaly
from sparklog.testing.sim.checks.history import History
from sparklog.testing.sim.checks.transactions import (
    Ledger,
    PartitionView,
    Transaction,
    check_copies,
    check_transactions,
    copy_of,
    view_of,
)
from sparklog.testing.sim.clients.client import Worker
from sparklog.testing.sim.clients.group_clients import KafkaGroupClient
from sparklog.testing.sim.clients.members import SESSION_TIMEOUT_MS, MemberGroup, SimClassicMember
from sparklog.testing.sim.clients.sinks import SinkQuery
from sparklog.testing.sim.clients.transaction_readers import IsolatedReader, TransactionReader
from sparklog.testing.sim.clients.transactional import (
    GROUP,
    OutcomeUnknown,
    RequestRefused,
    TransactionalProducer,
    find_coordinator,
)
from sparklog.testing.sim.clients.users import SimUser
from sparklog.testing.sim.clients.workload import bytes_of
from sparklog.testing.sim.cluster import SimCluster
from sparklog.testing.sim.kafka import SimKafka, raise_for

TOPICS = ("txn-a", "txn-b")
COPIES = "txn-copies"
COPIERS = "copiers"
PAUSE_S = SESSION_TIMEOUT_MS / 1000 + 1
"""A pause of a process after which another member of its group has its partitions."""
COPIES_AT_ONCE = 3
"""Transactions of a copier between two heartbeats."""
PARTITIONS = 2
SOURCES = [TopicPartition(TOPICS[0], number) for number in range(PARTITIONS)]
WRITTEN = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
TARGETS = [TopicPartition(COPIES, number) for number in range(PARTITIONS)]
LIST_TRANSACTIONS, OFFSET_FETCH = 66, 9
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
WRITER_TIMEOUT_MS = 2_000
COPIER_TIMEOUT_MS = 6_000
"""Longer than a member's session: another member takes over the open transaction of a dead one."""
ENDS_S = COPIER_TIMEOUT_MS / 1000 + 20
"""How long an abandoned transaction may stay open: its timeout, and the time to deliver markers."""
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
TOPIC_CONFIG = {"internal.segment.bytes": "2000", "index.interval.bytes": "100", "retention.ms": "-1"}


class ProcessKilled(Exception):
    """The process of an application is killed in the middle of a transaction."""


class Application:
    """One transactional id, and the processes that use it one after the other."""

    def __init__(self, producer: TransactionalProducer, ledger: Ledger) -> None:
        self.producer = producer
        self.ledger = ledger
        self._numbers = count()
        self._is_killed = True

    async def is_ready(self) -> bool:
        """Initialise the producer if it is not ready. Return whether a transaction may begin."""
        if self.producer.is_ready:
            return True
        chance = self.producer.client.chance
        try:
            await self.producer.initialise(is_new_process=self._is_killed or chance.random() < 0.3)
        except (RequestRefused, OutcomeUnknown):
            self._is_killed = True  # as an application is that has been fenced
            return False
        self._is_killed = False
        return True

    def begin(self) -> Transaction:
        """Add the next transaction of this id to the ledger and return it; no request is sent."""
        return self.ledger.begin(f"{self.producer.transactional_id}/{next(self._numbers)}")

    def be_killed(self) -> None:
        """Let the next process begin, without the state of the present one."""
        self._is_killed = True
        self.producer.needs_epoch()

    def be_killed_while_committing(self, transaction: Transaction) -> None:
        """Let the next process begin, while the last request of the present one is still on its way."""
        self.ledger.ask_for_commit(transaction)
        self.producer.end_late(is_commit=True)
        self.be_killed()

    async def commit(self, transaction: Transaction, *, is_doubled: bool = False) -> bool:
        """Commit. Return whether the commit is certain."""
        self.ledger.ask_for_commit(transaction)
        try:
            await self.producer.end(is_commit=True, is_doubled=is_doubled)
        except RequestRefused:
            if not is_doubled:
                transaction.be_refused()
            return False
        except OutcomeUnknown:
            return False
        transaction.be_committed()
        return True

    async def abort(self) -> None:
        """Abort with a request, or leave that to the next `initialise`."""
        if self.producer.client.chance.random() < 0.7:
            try:
                await self.producer.end(is_commit=False, is_doubled=self.producer.client.chance.random() < 0.2)
            except (RequestRefused, OutcomeUnknown):
                return
        else:
            self.producer.needs_epoch()

    async def leave(self, *, deadline: float) -> None:
        """End an open transaction, like the start of another process. Give up at the deadline."""
        await self.producer.delivered()
        self.be_killed()
        while not await self.is_ready() and asyncio.get_running_loop().time() < deadline:
            await self.producer.client.back_off()
        await self.producer.delivered()


class TransactionWriter:
    """Writes transactions one after the other. Implements Worker."""

    def __init__(self, application: Application, *, leaves_open: bool) -> None:
        self._application = application
        self._producer = application.producer
        self._chance = application.producer.client.chance
        self._leaves_open = leaves_open
        self._values = count()

    async def run(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await asyncio.sleep(self._chance.expovariate(10))
            if await self._application.is_ready():
                await self._transact()
            else:
                await self._producer.client.back_off()
        if not self._leaves_open:
            await self._application.leave(deadline=asyncio.get_running_loop().time() + ENDS_S)
            return
        await self._producer.delivered()
        if await self._application.is_ready():
            await self._begin_only()

    async def _transact(self) -> None:
        transaction = self._application.begin()
        commits = self._chance.random() < 0.6
        try:
            await self._write(transaction, is_late=not commits and self._chance.random() < 0.3)
        except ProcessKilled:
            if self._chance.random() < 0.5:
                self._application.be_killed_while_committing(transaction)
            else:
                self._application.be_killed()
        except (RequestRefused, OutcomeUnknown):
            await self._application.abort()
        else:
            if commits:
                await self._application.commit(transaction, is_doubled=self._chance.random() < 0.2)
            else:
                await self._application.abort()

    async def _write(self, transaction: Transaction, *, is_late: bool) -> None:
        partitions = self._chance.sample(WRITTEN, self._chance.choice((1, 2, 3)))
        await self._producer.begin(partitions)
        for partition in partitions * self._chance.choice((1, 1, 2)):
            await asyncio.sleep(self._chance.expovariate(30))
            await self._producer.send(partition, self._value(transaction, partition))
            if self._chance.random() < 0.3:
                await self._producer.repeat_marker(partition)
            if self._chance.random() < 0.04:
                raise ProcessKilled
            if self._chance.random() < 0.02:
                await asyncio.sleep(1.5 * WRITER_TIMEOUT_MS / 1000)
        if is_late:
            partition = self._chance.choice(WRITTEN)
            self._producer.send_late(partition, self._value(transaction, partition))

    async def _begin_only(self) -> None:
        """Begin a transaction, and never end it."""
        transaction = self._application.begin()
        try:
            await self._producer.begin(WRITTEN[:1])
            await self._producer.send(WRITTEN[0], self._value(transaction, WRITTEN[0]))
        except (RequestRefused, OutcomeUnknown):
            return

    def _value(self, transaction: Transaction, partition: TopicPartition) -> str:
        value = f"{self._producer.transactional_id}:{next(self._values)}"
        transaction.send(value, partition)
        return value


class Copier(SimClassicMember):
    """A member that copies the records of its partitions instead of committing numbers. Implements Worker."""

    def __init__(
        self, client: KafkaGroupClient, group: MemberGroup, application: Application, reader: IsolatedReader
    ) -> None:
        super().__init__(client, group)
        self._application = application
        self._reader = reader
        self._positions: dict[TopicPartition, int] = {}
        self._generation = -1
        """The generation that the positions belong to."""

    async def run(self, is_over: asyncio.Event) -> None:
        await super().run(is_over)
        await self._application.leave(deadline=asyncio.get_running_loop().time() + ENDS_S)

    async def _commit_one(self) -> None:
        if self._generation != self.epoch:
            self._positions, self._generation = {}, self.epoch
        for _ in range(COPIES_AT_ONCE):
            if self.owned and await self._application.is_ready():
                await self._copy_some()

    async def _copy_some(self) -> None:
        partition = self.client.chance.choice(self.owned)
        try:
            if partition not in self._positions:
                self._positions[partition] = await stable_offset(self._reader.client, partition)
            shown = await self._reader.fetch(partition, self._positions[partition])
        except KafkaError:
            return
        if shown.records and not await self._copy(partition, shown.records, shown.next_offset):
            del self._positions[partition]
            return
        self._positions[partition] = shown.next_offset

    async def _copy(self, source: TopicPartition, records: tuple[tuple[int, str], ...], next_offset: int) -> bool:
        transaction, producer = self._application.begin(), self._application.producer
        try:
            targets = {name: None for _ in records for name in (self.client.chance.choice(TARGETS),)}
            await producer.begin(list(targets))
            for offset, value in records:
                target = self.client.chance.choice(list(targets))
                copied = copy_of(source, offset, value, transaction.name)
                transaction.send(copied, target)
                await producer.send(target, copied)
            if self.client.chance.random() < 0.03:
                await asyncio.sleep(PAUSE_S * self.client.chance.uniform(0.8, 1.2))
            await producer.commit_offsets(self.group.name, self.member_id, self.epoch, {source: next_offset})
        except (RequestRefused, OutcomeUnknown):
            await self._application.abort()
            return False
        fate = self.client.chance.random()
        if fate < 0.1:
            await self._application.abort()
            return False
        if fate < 0.2:
            await self._be_killed_with(transaction)
            return False
        return await self._application.commit(transaction)

    async def _be_killed_with(self, transaction: Transaction) -> None:
        """Forget everything, while the offsets are pending, and come back before the session ends or after that.

        At times the member leaves first, so that another one has its partitions at once.
        """
        if self.client.chance.random() < 0.7:
            self._application.be_killed_while_committing(transaction)
        else:
            self._application.be_killed()
        if self.client.chance.random() < 0.5:
            with suppress(KafkaError):
                await self._leave()
        await self._restart_after_kill()


async def stable_offset(client: SimKafka, partition: TopicPartition) -> int:
    """Return the offset that the group of copiers has committed, 0 if it has none. Raises KafkaError.

    While a transaction is about to commit the offset, the error is UNSTABLE_OFFSET_COMMIT.
    """
    topics = [{"name": partition.topic, "partition_indexes": [partition.partition]}]
    answer = await client.ask(
        await find_coordinator(client, COPIERS, GROUP), OFFSET_FETCH, 8,
        groups=[{"group_id": COPIERS, "topics": topics}], require_stable=True,
    )  # fmt: skip
    [group] = answer.groups
    raise_for(group.error_code)
    part = group.topics[0].partitions[0]
    raise_for(part.error_code)
    return max(0, int(part.committed_offset))


class TransactionWorkers:
    """All applications and readers of a run, and its ledger."""

    def __init__(self, cluster: SimCluster, history: History, *, may_leave_open: bool, has_sink: bool) -> None:
        """may_leave_open: whether timeouts end transactions at the right time."""
        self._cluster = cluster
        self._bootstrap = [node.name for node in cluster.nodes.values()]
        self._ledger = Ledger()
        chance = cluster.stream("transactions")
        self._admin = self._wire("transactions-admin")
        self._readers = [
            TransactionReader(self._reader("all-reader", is_committed_only=False), [*WRITTEN, *TARGETS]),
            TransactionReader(self._reader("committed-reader", is_committed_only=True), [*WRITTEN, *TARGETS]),
        ]
        self._writers = [
            TransactionWriter(
                self._application(f"writer-{number}", is_v2=is_v2, timeout_ms=WRITER_TIMEOUT_MS),
                leaves_open=may_leave_open and chance.random() < 0.5,
            )
            for number, is_v2 in enumerate((False, True, chance.random() < 0.5))
        ]
        group = MemberGroup(COPIERS, history, SOURCES)
        self._copiers = [
            Copier(
                KafkaGroupClient(self._wire(f"copier-{number}")),
                group,
                self._application(f"copies-{number}", is_v2=chance.random() < 0.5, timeout_ms=COPIER_TIMEOUT_MS),
                self._reader(f"copy-reader-{number}", is_committed_only=True),
            )
            for number in range(2)
        ]

        user = SimUser("sink", cluster.loop, cluster.network, self._bootstrap, f"{cluster.seed}/sink")
        self._queries = [SinkQuery(user, self._ledger, WRITTEN)] if has_sink else []

    def __iter__(self) -> Iterator[Worker]:
        return iter([*self._writers, *self._copiers, *self._readers, *self._queries])

    async def check(self) -> list[Anomaly]:
        """Return all anomalies, once the cluster has settled and all transactions have ended."""
        cluster = self._cluster
        deadline = cluster.loop.time() + ENDS_S
        while left := [*self._unstable(), *await self._open()]:
            if cluster.loop.time() > deadline:
                return [Anomaly("open transaction", f"after {ENDS_S:.0f} s: {text}") for text in left]
            await asyncio.sleep(0.2)
        unread = [
            text for reader in self._readers for text in await reader.drain(self._log_end, cluster.loop.time() + 60)
        ]
        views = {name: self._view(name) for name in (*WRITTEN, *TARGETS)}
        found = [*(Anomaly("liveness", text) for text in unread), *check_transactions(self._ledger, views)]
        found += [anomaly for query in self._queries for anomaly in query.check(views)]
        committed = {}
        for name in SOURCES:
            committed[name] = await self._committed(name)
        found += check_copies(views, {name: views[name] for name in TARGETS}, committed)
        return found

    def _unstable(self) -> Iterator[str]:
        """Yield a text for each leader whose last stable offset is below its high watermark."""
        for node in self._cluster.nodes.values():
            for replica in node.broker.replicas() if node.broker and node.is_up else ():
                if replica.partition.is_leader and replica.last_stable_offset < replica.partition.high_watermark:
                    yield (
                        f"{node.name}: {replica.partition.name} is stable up to {replica.last_stable_offset} of "
                        f"{replica.partition.high_watermark}"
                    )

    async def _open(self) -> list[str]:
        """Return the transactions that coordinators have not ended."""
        found = []
        for address in self._bootstrap:
            try:
                answer = await self._admin.ask(
                    address, LIST_TRANSACTIONS, 0, state_filters=OPEN_STATES, producer_id_filters=()
                )
                raise_for(answer.error_code)
            except KafkaError as error:
                found.append(f"{address} does not list its transactions: {error}")
                continue
            found += [f"{each.transactional_id} is {each.transaction_state}" for each in answer.transaction_states]
        return found

    async def _committed(self, name: TopicPartition) -> int:
        deadline = self._cluster.loop.time() + ENDS_S
        while True:
            try:
                return await stable_offset(self._admin, name)
            except KafkaError as error:
                if self._cluster.loop.time() > deadline:
                    self._cluster.report("liveness", f"the offset of {COPIERS} in {name} cannot be read: {error}")
                    return 0
                await self._admin.back_off()

    def _log_end(self, name: TopicPartition) -> int:
        leader = int(self._cluster.states()[name]["leader"])
        log = self._cluster.nodes[leader].find_log(name)
        return log.log_end_offset if log else 0

    def _view(self, name: TopicPartition) -> PartitionView:
        leader = int(self._cluster.states()[name]["leader"])
        log = self._cluster.nodes[leader].find_log(name)
        return view_of(bytes_of(log, 0, log.log_end_offset) if log else b"")

    def _reader(self, name: str, *, is_committed_only: bool) -> IsolatedReader:
        return IsolatedReader(self._wire(name), self._ledger, is_committed_only=is_committed_only)

    def _application(self, name: str, *, is_v2: bool, timeout_ms: int) -> Application:
        producer = TransactionalProducer(
            self._wire(name), self._wire(f"{name}-late"), name, is_v2=is_v2, timeout_ms=timeout_ms
        )
        return Application(producer, self._ledger)

    def _wire(self, name: str) -> SimKafka:
        return SimKafka(name, self._cluster.network, self._bootstrap, self._cluster.stream(name))
