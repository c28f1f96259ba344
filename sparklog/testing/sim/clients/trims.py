"""DeleteRecords in a simulation: it moves up the log start of checked partitions, to a committed offset."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import delete_records
from sparklog.testing.sim.checks.history import History, OperationOutcome, Trim
from sparklog.testing.sim.clients.client import SimClient
from sparklog.testing.sim.clients.workload import SimConsumer

TIMEOUT_MS = 2_500


class Trimmer:
    """A client that deletes records below a high watermark that a consumer has seen, every second or two."""

    def __init__(self, client: SimClient, history: History, consumers: Sequence[SimConsumer]) -> None:
        self._client = client
        self._history = history
        self._consumers = list(consumers)

    async def run(self, is_over: asyncio.Event) -> None:
        chance = self._client.chance
        while not is_over.is_set():
            await asyncio.sleep(chance.expovariate(0.7))
            consumer = chance.choice(self._consumers)
            await self._trim(consumer, chance.randint(0, max(0, consumer.high_watermark)))

    async def _trim(self, consumer: SimConsumer, before_offset: int) -> None:
        partition = consumer.partition
        operation = self._history.begin(self._client.name, Trim(partition=partition, before_offset=before_offset))
        part = delete_records.RecordsToDelete(
            topic=partition.topic, partition=partition.partition, before_offset=before_offset
        )
        request = delete_records.DeleteRecordsRequest(partitions=[part], timeout_ms=TIMEOUT_MS)
        try:
            address, _ = await self._client.leader(partition)
            answer = (await self._client.ask(address, delete_records.API, request)).partitions[0]
            if answer.error:
                raise answer.error
        except KafkaError as error:
            self._client.forget_leader(partition)
            self._history.end(operation, OperationOutcome.INFO, str(error))
        else:
            self._history.end(operation, OperationOutcome.OK, answer.log_start_offset)
