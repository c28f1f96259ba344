"""Topics that are created, moved and deleted in a simulation. A deleted topic must never come back.

A broker that is down while a topic leaves it finds the topic's folder when it starts. By then the topic may be deleted,
and the other brokers may be down, so that no broker can tell it.

Each topic has a name of its own. A broker never deletes a folder whose topic it cannot find, and serves no other topic
of that name until the folder is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.apis import create_topics, delete_topics, partition_reassignments
from sparklog.testing.sim.checks.checker import Anomaly
from sparklog.testing.sim.clients.client import SimClient
from sparklog.testing.sim.cluster import SimCluster

MOST_TOPICS = 3
TIMEOUT_MS = 5_000


class TopicMover:
    """A client that creates topics, moves them to brokers that are up, and deletes them."""

    def __init__(self, client: SimClient, cluster: SimCluster, *, replication_factor: int) -> None:
        self._client = client
        self._cluster = cluster
        self._factor = replication_factor
        self._created = 0
        self._topics: list[str] = []
        self.deleted: set[str] = set()
        """The topics whose deletion was acknowledged."""
        self._asked: set[str] = set()
        """The topics that the mover has asked to delete. The answer may have been lost."""

    async def run(self, is_over: asyncio.Event) -> None:
        """Send a request twice a second until `is_over` is set."""
        chance = self._client.chance
        while not is_over.is_set():
            await asyncio.sleep(chance.expovariate(2))
            if len(self._topics) < MOST_TOPICS and chance.random() < 0.5:
                await self._create()
            elif self._topics:
                await chance.choice((self._move, self._move, self._delete))(chance.choice(self._topics))

    @property
    def gone(self) -> set[str]:
        """The deleted topics. A broker that the controller could not reach may still have a folder of theirs."""
        return self._asked - set(self._cluster.tree.names("/brokers/topics"))

    def check(self) -> Iterator[Anomaly]:
        """Yield an anomaly for each deleted topic that is in the store."""
        for name in sorted(self.deleted & set(self._cluster.tree.names("/brokers/topics"))):
            yield Anomaly("deleted topic", f"{name} was deleted, and has come back")

    async def _create(self) -> None:
        self._created += 1
        name = f"moved{self._created}"
        self._topics.append(name)
        topic = create_topics.NewTopic(name=name, partitions=1, replication_factor=self._factor)
        await self._ask(create_topics.API, create_topics.CreateTopicsRequest(topics=[topic]))

    async def _move(self, name: str) -> None:
        there = [node.broker_id for node in self._cluster.nodes.values() if node.is_up]
        if len(there) < 2:
            return
        target = tuple(self._client.chance.sample(there, min(self._factor, len(there))))
        request = partition_reassignments.AlterPartitionReassignmentsRequest(
            targets={TopicPartition(name, 0): target}, timeout_ms=TIMEOUT_MS
        )
        await self._ask(partition_reassignments.ALTER_PARTITION_REASSIGNMENTS, request)

    async def _delete(self, name: str) -> None:
        self._asked.add(name)
        request = delete_topics.DeleteTopicsRequest(topics=[delete_topics.TopicToDelete(name=name)])
        answer = await self._ask(delete_topics.API, request)
        if answer is not None and answer.topics[0].error is None:
            self._topics.remove(name)
            self.deleted.add(name)

    async def _ask(self, api: Api[Any, Any], request: Any) -> Any:
        """Return the answer of a random broker; None if there is none."""
        try:
            return await self._client.ask_any(api, request, TIMEOUT_MS)
        except KafkaError:
            return None
