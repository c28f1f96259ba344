"""Whole brokers without listeners on one event loop: they call each other directly, and share a store."""

from __future__ import annotations

from typing import Any

from sparklog.base.config import Setting, parse_broker_config
from sparklog.base.errors import NetworkException
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import PEER_APIS, create_topics, fetch, produce
from sparklog.broker.node import Broker
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.model import BrokerInfo
from sparklog.testing.memory_fs import MemoryFs
from support.patience import PATIENCE_MS, until

SETTINGS = {
    "log.dirs": "/data",
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "2",
    "replica.fetch.backoff.ms": "10",
    "controlled.shutdown.retry.backoff.ms": "10",
    "controlled.shutdown.timeout.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}


class BrokersOnOneLoop:
    """Brokers by id, each with a disk that outlives it."""

    def __init__(self, **settings: str) -> None:
        """`settings` have underscores for dots."""
        self.tree = MemoryTree()
        self.brokers: dict[int, Broker] = {}
        self.settings = SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}
        self._disks: dict[int, MemoryFs] = {}
        self._stores: dict[int, MemoryStore] = {}

    async def start(self, *ids: int, **settings: str) -> None:
        """One after the other: the first is the controller."""
        for broker_id in ids:
            keys = self.settings | {name.replace("_", "."): value for name, value in settings.items()}
            keys["broker.id"] = str(broker_id)
            store = self._stores[broker_id] = MemoryStore(self.tree)
            broker = Broker(
                parse_broker_config([Setting(name, raw, "") for name, raw in keys.items()]),
                fs=self._disks.setdefault(broker_id, MemoryFs()), store=store, peers=Calls(self.brokers),
            )  # fmt: skip
            self.brokers[broker_id] = broker
            await broker.start(f"broker-{broker_id}:1")

    async def stop(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    async def stop_all(self) -> None:
        for broker_id in list(self.brokers):
            await self.stop(broker_id)

    def expire(self, broker_id: int) -> None:
        """End the session that the broker has in the store."""
        self.tree.expire(self._stores[broker_id].session_id)

    def cut_off(self, broker_id: int) -> Broker:
        """Nobody reaches the broker any more, and its session ends; it knows of neither. To be stopped by the test."""
        zombie, store = self.brokers.pop(broker_id), self._stores[broker_id]
        store.disconnect()
        self.tree.expire(store.session_id)
        return zombie

    def kill(self, broker_id: int) -> Broker:
        """The process is gone, and its session lasts; what it had written is there. To be stopped by the test."""
        self._stores[broker_id].abandon()
        self._disks[broker_id] = self._disks[broker_id].kill()
        return self.brokers.pop(broker_id)

    def lose_store(self) -> None:
        """All that brokers agree on is gone; none runs."""
        self.tree = MemoryTree()

    def new_disk(self, broker_id: int) -> None:
        """Another machine, with nothing on it."""
        self._disks[broker_id] = MemoryFs()

    def disk(self, broker_id: int) -> MemoryFs:
        return self._disks[broker_id]

    def folders(self, broker_id: int) -> list[str]:
        """The names in the broker's log directory."""
        return self._disks[broker_id].list(SETTINGS["log.dirs"])

    # What is asked of them

    async def create(self, name: str, replicas: list[list[int]], **configs: str) -> None:
        topic = create_topics.NewTopic(
            name=name,
            assignments=list(enumerate(replicas)),
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        broker = next(iter(self.brokers.values()))
        response = await broker.serve(create_topics.API, create_topics.CreateTopicsRequest(topics=[topic]))
        if error := response.topics[0].error:
            raise error

    async def produce(self, broker_id: int, name: TopicPartition, data: bytearray) -> produce.PartitionProduceResult:
        part = produce.PartitionProduce(topic=name.topic, partition=name.partition, data=data)
        request = produce.ProduceRequest(partitions=[part], acks=-1, timeout_ms=PATIENCE_MS)
        return (await self.brokers[broker_id].serve(produce.API, request)).partitions[0]

    async def read(self, broker_id: int, name: TopicPartition) -> bytes:
        """All committed bytes, at the leader."""
        part = fetch.PartitionFetch(topic=name.topic, partition=name.partition, fetch_offset=0, max_bytes=1 << 20)
        request = fetch.FetchRequest(max_bytes=1 << 20, partitions=[part])
        found = (await self.brokers[broker_id].serve(fetch.API, request)).partitions[0]
        if found.error:
            raise found.error
        return found.slice.read() if found.slice else b""

    async def until_led(self, name: TopicPartition, leader: int, *, isr: set[int] | None = None) -> None:
        """Until all brokers know that it is so, and the leader has heard it."""
        for broker in self.brokers.values():
            metadata = broker.services.metadata

            def is_so(metadata: Any = metadata) -> bool:
                info = metadata.find_partition(name)
                return info is not None and info.leader == leader and (isr is None or set(info.in_sync_replicas) == isr)

            assert await metadata.wait_until(is_so, PATIENCE_MS), f"{name}: {metadata.find_partition(name)}"
        replicas = self.brokers[leader].services.replicas
        await until(lambda: replicas.get(name).partition.is_leader, f"{leader} knows that it leads {name}")


class Calls:
    """Implements Peers."""

    def __init__(self, brokers: dict[int, Broker]) -> None:
        self._brokers = brokers

    async def call(self, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
        found = self._brokers.get(broker.broker_id)
        if found is None or not found.has_services:
            raise NetworkException(f"broker {broker.broker_id} is not there")
        return await found.serve(PEER_APIS[type(request)], request)

    async def close(self) -> None:
        return
