"""A simulated client that finds leaders by metadata. Its users retry after errors.

The client sends API requests as Python values over the simulated network. It bypasses the listeners and the client
libraries.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Protocol

from sparklog.base.errors import KafkaError, LeaderNotAvailable
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.apis import find_coordinator, metadata
from sparklog.testing.sim.network import SimNetwork

REQUEST_TIMEOUT_MS = 3_000
BACKOFF_S = 0.1


class Worker(Protocol):
    """A client that works until `is_over` is set."""

    async def run(self, is_over: asyncio.Event) -> None:
        """Work until `is_over` is set, then return."""
        ...


class SimClient:
    """Sends requests to brokers. It caches leaders, leader epochs and replicas from the last metadata."""

    def __init__(self, name: str, network: SimNetwork, bootstrap: Sequence[str], chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self._network = network
        self._bootstrap = list(bootstrap)
        self._leaders: dict[TopicPartition, tuple[str, int]] = {}
        self._replicas: dict[TopicPartition, list[str]] = {}
        self._epochs: dict[TopicPartition, int] = {}

    async def ask(
        self,
        address: str,
        api: Api[Any, Any],
        request: Any,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        *,
        may_double: bool = False,
    ) -> Any:
        """Send a request to the broker at `address`. Return its answer or raise KafkaError."""
        return await self._network.call(self.name, address, api, request, timeout_ms=timeout_ms, may_double=may_double)

    async def ask_any(self, api: Api[Any, Any], request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Send a request to a random bootstrap broker. Return its answer or raise KafkaError."""
        return await self.ask(self.chance.choice(self._bootstrap), api, request, timeout_ms)

    async def refresh(self) -> None:
        """Update the cache from the metadata of a random bootstrap broker. Keep it if the broker does not answer."""
        try:
            answer = await self.ask_any(metadata.API, metadata.MetadataRequest())
        except KafkaError:
            return
        addresses = {broker.broker_id: broker.grpc_address for broker in answer.brokers}
        for topic in answer.topics:
            for part in topic.partitions:
                name = TopicPartition(topic.name or "", part.partition)
                self._replicas[name] = [addresses[each] for each in part.replicas if each in addresses]
                if part.leader_epoch < self._epochs.get(name, 0):
                    continue  # stale metadata: Kafka's clients ignore an older leader epoch too
                self._epochs[name] = part.leader_epoch
                if part.leader in addresses:
                    self._leaders[name] = addresses[part.leader], part.leader_epoch
                else:
                    self._leaders.pop(name, None)

    async def leader(self, name: TopicPartition) -> tuple[str, int]:
        """Return the leader's address and leader epoch. Raise LeaderNotAvailable if none is known."""
        if name not in self._leaders:
            await self.refresh()
        found = self._leaders.get(name)
        if found is None:
            raise LeaderNotAvailable(str(name))
        return found

    async def ask_leader(self, name: TopicPartition, api: Api[Any, Any], request: Any) -> None:
        """Send a request to the partition's leader. On an error, forget the leader and return as usual."""
        try:
            address, _ = await self.leader(name)
            await self.ask(address, api, request)
        except KafkaError:
            self.forget_leader(name)

    def forget_leader(self, name: TopicPartition) -> None:
        """Drop the cached leader, so that the next request looks it up again."""
        self._leaders.pop(name, None)

    async def some_replica(self, name: TopicPartition) -> str:
        """Return the address of a random replica. Raise LeaderNotAvailable if none is known."""
        if not self._replicas.get(name):
            await self.refresh()
        replicas = self._replicas.get(name)
        if not replicas:
            raise LeaderNotAvailable(str(name))
        return self.chance.choice(replicas)

    async def coordinator(self, group: str) -> str:
        """Return the address of the group's coordinator. Raise KafkaError."""
        request = find_coordinator.FindCoordinatorRequest(keys=[group])
        found = (await self.ask_any(find_coordinator.API, request)).coordinators[0]
        if found.error:
            raise found.error
        return str(found.broker.grpc_address)

    async def back_off(self) -> None:
        """Wait a random time before a retry: 50 to 200 ms."""
        await asyncio.sleep(BACKOFF_S * self.chance.uniform(0.5, 2))
