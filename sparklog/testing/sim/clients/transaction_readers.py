"""Readers of topics with transactions, in Kafka's protocol, of both isolation levels.

A reader of committed records drops the batches of aborted transactions as Kafka's consumer does: by the aborted
transactions of the answer, and by the markers among the batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.records.markers import read_marker
from sparklog.testing.sim.checks.transactions import FetchAnswer, Ledger
from sparklog.testing.sim.clients.workload import batches_of
from sparklog.testing.sim.kafka import SimKafka, raise_for

FETCH = 1
CHANCE_OF_A_FOLLOWER = 0.3
CHANCE_TO_BEGIN_AGAIN = 0.02


class IsolatedReader:
    """Fetches at one isolation level, and records the answers in the ledger.

    Clients that speak version 11 or newer at times ask any broker: it may be a follower (KIP-392).
    """

    def __init__(self, client: SimKafka, ledger: Ledger, *, is_committed_only: bool) -> None:
        self.client = client
        self.is_committed_only = is_committed_only
        self._ledger = ledger
        self._version = client.chance.choice((4, 11, 12))

    async def fetch(self, partition: TopicPartition, position: int) -> FetchAnswer:
        """Return the records at `position`. Raises KafkaError."""
        chance = self.client.chance
        from_anyone = self._version >= 11 and chance.random() < CHANCE_OF_A_FOLLOWER
        try:
            address, epoch = (self.client.anyone(), -1) if from_anyone else await self.client.leader(partition)
            part = {
                "partition": partition.partition, "fetch_offset": position, "current_leader_epoch": epoch,
                "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": chance.choice((200, 5_000)),
            }  # fmt: skip
            answer = await self.client.ask(
                address, FETCH, self._version, max_wait=chance.choice((0, 300)), min_bytes=1, max_bytes=1 << 20,
                isolation_level=int(self.is_committed_only), session_id=0, session_epoch=-1,
                topics=[{"topic": partition.topic, "partitions": [part]}], forgotten_topics_data=[], rack_id="",
                cluster_id=None, replica_id=-1,
            )  # fmt: skip
            raise_for(getattr(answer, "error_code", None))
            found = answer.responses[0].partitions[0]
            raise_for(found.error_code)
        except KafkaError:
            self.client.forget_leader(partition)
            raise
        records, next_offset = self._visible(found, position)
        shown = FetchAnswer(
            self.client.name, self.is_committed_only, partition, position, next_offset, records,
            found.last_stable_offset, found.high_watermark,
        )  # fmt: skip
        self._ledger.shown.append(shown)
        return shown

    def _visible(self, found: Any, position: int) -> tuple[tuple[tuple[int, str], ...], int]:
        """Return the records of an answer, and the offset after its last batch."""
        begins = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
        aborted: set[int] = set()
        records, next_offset = [], position
        for header, batch in batches_of(found.records or b""):
            next_offset = max(next_offset, header.last_offset + 1)
            while begins and begins[0][0] <= header.last_offset:
                aborted.add(begins.pop(0)[1])
            if header.is_control:
                marker = read_marker(batch[0]) if batch else None
                if marker and not marker.is_commit:
                    aborted.discard(header.producer_id)
                continue
            if self.is_committed_only and header.is_transactional and header.producer_id in aborted:
                continue
            records += [(each.offset, (each.value or b"").decode()) for each in batch if each.offset >= position]
        return tuple(records), next_offset


class TransactionReader:
    """Reads all partitions from offset 0, and at times begins again. Implements Worker."""

    def __init__(self, reader: IsolatedReader, partitions: Sequence[TopicPartition]) -> None:
        self._reader = reader
        self._positions = dict.fromkeys(partitions, 0)

    async def run(self, is_over: asyncio.Event) -> None:
        chance = self._reader.client.chance
        while not is_over.is_set():
            partition = chance.choice(list(self._positions))
            if chance.random() < CHANCE_TO_BEGIN_AGAIN:
                self._positions[partition] = 0
            if not await self._poll(partition):
                await self._reader.client.back_off()

    async def drain(self, end_of: Callable[[TopicPartition], int], deadline: float) -> list[str]:
        """Read every partition from start to end. Return a text for each that cannot be read before `deadline`."""
        unread = []
        for partition in self._positions:
            self._positions[partition] = 0
            while self._positions[partition] < end_of(partition):
                if asyncio.get_running_loop().time() > deadline:
                    unread.append(f"{self._reader.client.name} is at {self._positions[partition]} of {partition}")
                    break
                if not await self._poll(partition):
                    await self._reader.client.back_off()
        return unread

    async def _poll(self, partition: TopicPartition) -> bool:
        """Fetch once. Return whether the position has moved."""
        try:
            shown = await self._reader.fetch(partition, self._positions[partition])
        except KafkaError:
            return False
        self._positions[partition] = shown.next_offset
        return shown.next_offset > shown.position
