"""A query that writes batches to a sink in a simulation, with the real clients, as a Spark query does.

Each task of a batch has one or two attempts, which write at the same time. Some stop in the middle, and of two that are
complete one loses. The driver commits the winners. It is killed at any time, also between the commit of the sink and
its own note of that. The next run writes the same batch again, unless the sink says that it is committed. So each batch
must be there once, and whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client.producer.producer import AsyncProducer
from sparklog.client.sinks.sinks import AsyncSinkClient, BatchWinner, SinkBatchId
from sparklog.testing.sim.checks.checker import Anomaly
from sparklog.testing.sim.checks.transactions import (
    BatchCommits,
    Ledger,
    PartitionView,
    Transaction,
    TransactionEnd,
    check_batches,
)
from sparklog.testing.sim.clients.users import SimUser

SINK = "query"
TIMEOUT_MS = 4_000
LIFE_S = 4.0
"""The mean lifetime of a driver in seconds."""
LATEST_MS = 5_000
"""How long a task tries to write a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttemptResult:
    winner: BatchWinner
    transaction: Transaction


class SinkQuery:
    """One run of the query after the other. Implements Worker."""

    def __init__(self, user: SimUser, ledger: Ledger, partitions: Sequence[TopicPartition]) -> None:
        self._user = user
        self._ledger = ledger
        self._partitions = list(partitions)
        self._runs, self._values = count(), count()
        self._number = 0
        self._asked: dict[int, BatchCommits] = {}
        self._found: list[Anomaly] = []

    async def run(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await self._user.live(self._run_once(is_over), self._user.chance.expovariate(1 / LIFE_S))

    def check(self, views: Mapping[TopicPartition, PartitionView]) -> Iterator[Anomaly]:
        """Yield the anomalies of batches; `check_transactions` sees those of their records."""
        yield from self._found
        yield from check_batches(self._asked, views)

    async def _run_once(self, is_over: asyncio.Event) -> None:
        run_id = f"run-{next(self._runs)}"
        sinks = AsyncSinkClient(**self._user.options())
        try:
            while not is_over.is_set():
                await asyncio.sleep(self._user.chance.expovariate(3))
                await self._write(sinks, SinkBatchId(SINK, run_id, self._number))
                self._number += 1
        except (SparklogError, _RunStopped):
            return

    async def _write(self, sinks: AsyncSinkClient, batch: SinkBatchId) -> None:
        """Write a batch. Raises SparklogError or _RunStopped if the run ends without knowing that it is committed."""
        asked = self._asked.setdefault(batch.batch_id, BatchCommits())
        chance = self._user.chance
        tasks = [chance.choice((1, 1, 2)) for _ in range(chance.choice((1, 2, 3)))]
        attempts = [
            (task, f"{batch.sink_id}-{batch.batch_id}-{batch.run_id}-{task}-{number}")
            for task, copies in enumerate(tasks)
            for number in range(copies)
        ]
        before = tuple(asked.transactions)
        done = await asyncio.gather(*(self._attempt(sinks, batch, name, before) for _, name in attempts))
        if any(each is None for each in done):
            self._note_committed(batch, asked)
            return
        complete = {
            task: each for (task, _), each in zip(attempts, done, strict=True) if isinstance(each, _AttemptResult)
        }
        if len(complete) < len(tasks):
            await sinks.abort(batch)
            raise _RunStopped
        winners = [complete[task] for task in range(len(tasks))]
        transaction = self._ledger.join(f"{batch.sink_id}-{batch.batch_id}-{batch.run_id}/0", [
            each.transaction for each in winners
        ])  # fmt: skip
        asked.transactions.append(transaction)
        self._ledger.ask_for_commit(transaction)
        await sinks.commit(batch, [each.winner for each in winners])
        transaction.be_committed()
        if chance.random() < 0.2:
            raise _RunStopped  # before the driver's own note of the commit
        asked.be_over()

    def _note_committed(self, batch: SinkBatchId, asked: BatchCommits) -> None:
        """Note the sink's answer that an earlier run has committed the batch."""
        asked.be_over()
        if all(each.end is TransactionEnd.ABORTED for each in asked.transactions):
            self._found.append(Anomaly("phantom", f"nobody has asked for the commit of {batch}"))

    async def _attempt(
        self, sinks: AsyncSinkClient, batch: SinkBatchId, name: str, before: Sequence[Transaction]
    ) -> _AttemptResult | bool | None:
        """Write the rows of a task attempt. Return None if the batch is committed, False if the attempt has stopped.

        before: the transactions of earlier runs. Once this run has begun the batch, none of them can be committed.
        """
        identity = await sinks.join(batch, timeout_ms=TIMEOUT_MS)
        if identity is None:
            return None
        for each in before:
            if each.end is TransactionEnd.DOUBTFUL:
                each.be_refused()
        transaction = self._ledger.begin(f"{name}/0")
        topics: dict[str, list[int]] = {}
        producer = AsyncProducer(
            **self._user.options(), transactional_id=batch.sink_id, linger_ms=0,
            max_block_ms=LATEST_MS, delivery_timeout_ms=LATEST_MS,
        )  # fmt: skip
        try:
            await producer.enlist(*identity)
            is_complete = await self._send(producer, name, transaction, topics)
        except SparklogError:
            is_complete = False
        await producer.close(0)
        if not is_complete:
            return False
        named = {topic: sorted(set(numbers)) for topic, numbers in topics.items()}
        return _AttemptResult(winner=BatchWinner(identity, named), transaction=transaction)

    async def _send(
        self, producer: AsyncProducer, name: str, transaction: Transaction, topics: dict[str, list[int]]
    ) -> bool:
        """Send the rows of an attempt, and note their partitions. Return False if it stops in the middle."""
        chance = self._user.chance
        for _ in range(chance.choice((1, 2, 4))):
            place, value = chance.choice(self._partitions), f"{name}:{next(self._values)}"
            transaction.send(value, place)
            topics.setdefault(place.topic, []).append(place.partition)
            delivery = await producer.send(place.topic, value, partition=place.partition)
            if chance.random() < 0.05:
                return False
            await delivery
        return True


class _RunStopped(Exception):
    """The run ends here."""
