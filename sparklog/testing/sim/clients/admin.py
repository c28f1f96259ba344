"""An administrator that sends random requests while a simulated cluster works and fails.

It moves and configures the topics whose records the checker checks, and elects their leaders. It creates, grows and
deletes other topics. Another client deletes records: it moves up the log start of checked partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.apis import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    elect_leaders,
    partition_reassignments,
)
from sparklog.broker.resources import ConfigResource, ResourceType
from sparklog.testing.sim.checks.history import AdminOperation, History, OperationOutcome, Trim
from sparklog.testing.sim.clients.client import SimClient
from sparklog.testing.sim.clients.workload import SimConsumer

TIMEOUT_MS = 5_000
TRIM_TIMEOUT_MS = 2_500
SCRATCH_TOPICS = ("scratch1", "scratch2", "scratch3")
"""Only a few names, so that deleted topics are created again."""
CONFIGS = {
    "segment.ms": ("2000", "3600000"),
    "internal.segment.bytes": ("500", "2000", "5000"),
    "index.interval.bytes": ("0", "100", "4096"),
    "flush.messages": ("1", ""),
    "flush.ms": ("200", ""),
    "min.insync.replicas": ("1", "2"),
    "max.message.bytes": ("2000", "1048588"),
}
"""The values to which the administrator sets each key. An empty value removes the override."""
Asked = tuple[str, Api[Any, Any], Any]


class Administrator:
    """Sends a random administrative request every two seconds on average, and records its outcome in the history."""

    def __init__(
        self,
        client: SimClient,
        history: History,
        partitions: Sequence[TopicPartition],
        brokers: Sequence[int],
        *,
        replication_factor: int,
    ) -> None:
        self._client = client
        self._history = history
        self._partitions = list(partitions)
        self._brokers = list(brokers)
        self._factor = replication_factor

    async def run(self, is_over: asyncio.Event) -> None:
        """Send requests until `is_over` is set."""
        chance = self._client.chance
        kinds = [self._create, self._delete, self._grow, self._elect, self._configure]
        if len(self._brokers) > 1:
            kinds += [self._move, self._move]
        while not is_over.is_set():
            await asyncio.sleep(chance.expovariate(0.5))
            await self._ask(*chance.choice(kinds)())

    async def create(self, topic: create_topics.NewTopic) -> bool:
        """Create a topic. Return whether it exists now, according to the answer."""
        request = create_topics.CreateTopicsRequest(topics=[topic])
        try:
            answer = await self._client.ask_any(create_topics.API, request, TIMEOUT_MS)
        except KafkaError:
            return False
        error = answer.topics[0].error
        return error is None or error.name == "TOPIC_ALREADY_EXISTS"

    async def _ask(self, text: str, api: Api[Any, Any], request: Any) -> None:
        deletes = request.topics[0].name if api is delete_topics.API else None
        operation = self._history.begin(self._client.name, AdminOperation(text=text, deletes=deletes))
        try:
            answer = await self._client.ask_any(api, request, TIMEOUT_MS)
        except KafkaError as error:
            self._history.end(operation, OperationOutcome.INFO, str(error))
        else:
            self._history.end(operation, OperationOutcome.OK, answer)

    def _name(self) -> str:
        return self._client.chance.choice(SCRATCH_TOPICS)

    def _create(self) -> Asked:
        topic = create_topics.NewTopic(
            name=self._name(), partitions=self._client.chance.choice((1, 2)), replication_factor=self._factor
        )
        return f"create {topic.name}", create_topics.API, create_topics.CreateTopicsRequest(topics=[topic])

    def _delete(self) -> Asked:
        name = self._name()
        request = delete_topics.DeleteTopicsRequest(topics=[delete_topics.TopicToDelete(name=name)])
        return f"delete {name}", delete_topics.API, request

    def _grow(self) -> Asked:
        name = self._name()
        count = create_partitions.NewPartitions(name=name, total=self._client.chance.choice((2, 3)))
        return f"grow {name}", create_partitions.API, create_partitions.CreatePartitionsRequest(topics=[count])

    def _move(self) -> Asked:
        chance = self._client.chance
        partition = chance.choice(self._partitions)
        target: tuple[int, ...] | None = tuple(chance.sample(self._brokers, self._factor))
        if chance.random() < 0.15:
            target = None
        request = partition_reassignments.AlterPartitionReassignmentsRequest(
            targets={partition: target}, timeout_ms=TIMEOUT_MS
        )
        return f"move {partition} to {target}", partition_reassignments.ALTER_PARTITION_REASSIGNMENTS, request

    def _elect(self) -> Asked:
        request = elect_leaders.ElectLeadersRequest(partitions=self._partitions, timeout_ms=TIMEOUT_MS)
        return "elect preferred leaders", elect_leaders.API, request

    def _configure(self) -> Asked:
        topic = self._client.chance.choice(self._partitions).topic
        name = self._client.chance.choice(list(CONFIGS))
        value = self._client.chance.choice(CONFIGS[name])
        change = alter_configs.ConfigChange(
            resource=ConfigResource(ResourceType.TOPIC, topic),
            changes=[alter_configs.KeyChange(name=name, operation=0 if value else 1, value=value or None)],
        )
        request = alter_configs.IncrementalAlterConfigsRequest(resources=[change])
        return f"configure {topic}: {name}={value or 'as it was'}", alter_configs.INCREMENTAL_ALTER_CONFIGS, request


class Trimmer:
    """Deletes records below a high watermark that a consumer has seen, every second or two. Implements Worker."""

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
        request = delete_records.DeleteRecordsRequest(partitions=[part], timeout_ms=TRIM_TIMEOUT_MS)
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
