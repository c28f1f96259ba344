"""A cluster in this process: brokers on one event loop that share a cluster store. Each has its own log directory.

    with start_cluster(3) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap)
        cluster.stop_broker(1)              # its partitions get other leaders
        cluster.start_broker(1)             # with the same data, at the same address

These brokers always stop cleanly. To kill a broker, run each as a process with `sparklog up --brokers 3`.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, TypeVar, Unpack

from sparklog.base.cluster_config import broker_settings, cluster_defaults
from sparklog.base.config import BrokerConfig
from sparklog.base.ids import TopicPartition
from sparklog.server.node import BrokerNode
from sparklog.testing.broker import kafka_address, parsed, start_node
from sparklog.testing.loop import BrokerLoop
from sparklog.testing.options import BrokerOptions

ACQUAINTED_WITHIN_S = 60
OFFSETS_PARTITIONS = 5  # a test has few groups: Kafka's 50 partitions with three replicas each would slow the start
Result = TypeVar("Result")


class RunningCluster:
    """A running cluster. `stop`, or the end of a `with` block, stops all its brokers."""

    def __init__(
        self, configs: Mapping[int, BrokerConfig], loop: BrokerLoop, data_dir: Path, *, keep_data: bool
    ) -> None:
        self.data_dir = data_dir
        """The folder that holds the brokers' folders."""
        self._configs = dict(configs)
        self._nodes: dict[int, BrokerNode] = {}
        self._addresses: dict[int, tuple[str, str]] = {}
        self._keep_data = keep_data
        self._is_stopped = False
        self._loop = loop

    @classmethod
    def start(cls, configs: Mapping[int, BrokerConfig], data_dir: Path, *, keep_data: bool) -> RunningCluster:
        """Start the brokers. Return them when they know each other. `configs` maps broker ids to their configurations.

        `keep_data`: `stop` does not remove `data_dir`.
        """
        cluster = cls(configs, BrokerLoop.start("sparklog cluster"), data_dir, keep_data=keep_data)
        try:
            cluster.run(cluster._start(sorted(configs)))
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @property
    def bootstrap(self) -> str:
        """The gRPC addresses of all brokers, also of stopped ones, as HOST:PORT,…."""
        return ",".join(grpc for grpc, _ in self._addresses.values())

    @property
    def kafka(self) -> str:
        """The Kafka addresses of all brokers, also of stopped ones, as HOST:PORT,…; empty without Kafka listeners."""
        return ",".join(kafka for _, kafka in self._addresses.values() if kafka)

    @property
    def nodes(self) -> Mapping[int, BrokerNode]:
        """The running brokers by id."""
        return MappingProxyType(self._nodes)

    @property
    def controller_id(self) -> int:
        """The controller's broker id, from the metadata of a running broker; -1 if it knows of no controller."""
        return self._some_node().broker.services.metadata.controller_id

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the broker id of the partition's leader, from the metadata of a running broker; -1 for no leader."""
        leader = self._some_node().broker.services.metadata.leader_of(TopicPartition(topic, partition))
        return leader.broker_id if leader else -1

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker. Return when every running broker knows it, or after a minute."""
        self.run(self._start([broker_id]))

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker cleanly. Return when all others know that it is gone, or after a minute.

        Its partitions get leaders among the other brokers.
        """
        self.run(self._stop(broker_id))

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run the coroutine on the brokers' event loop. Return its result or raise its exception.

        Call it from another thread only: on the loop's own thread it would wait forever.
        """
        return self._loop.run(coroutine)

    def stop(self) -> None:
        """Stop all brokers cleanly, one after another, and remove a temporary folder. Further calls do nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        for broker_id in sorted(self._nodes, reverse=True):
            self.run(self._nodes.pop(broker_id).stop())
        self._loop.close()
        if not self._keep_data:
            shutil.rmtree(self.data_dir)

    def __enter__(self) -> RunningCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _some_node(self) -> BrokerNode:
        return next(iter(self._nodes.values()))

    async def _start(self, broker_ids: list[int]) -> None:
        for broker_id in broker_ids:
            node = await start_node(self._configs[broker_id])
            self._nodes[broker_id] = node
            self._keep_addresses(broker_id, node)
        await self._all_acquainted()

    async def _stop(self, broker_id: int) -> None:
        await self._nodes.pop(broker_id).stop()
        await self._all_acquainted()

    async def _all_acquainted(self) -> None:
        async with asyncio.timeout(ACQUAINTED_WITHIN_S):
            await asyncio.gather(*(self._acquainted(node) for node in self._nodes.values()))

    async def _acquainted(self, node: BrokerNode) -> None:
        """Wait until the broker's metadata lists exactly the running brokers.

        From then on, a new topic gets all its replicas, and a stopped broker leads no partition.
        """
        metadata = node.broker.services.metadata
        await metadata.wait_until(lambda: self._nodes.keys() == metadata.brokers.keys(), ACQUAINTED_WITHIN_S * 1000)

    def _keep_addresses(self, broker_id: int, node: BrokerNode) -> None:
        """Put the ports that the system chose into the configuration, so that a restart uses them again."""
        if broker_id not in self._addresses:
            self._addresses[broker_id] = node.grpc_address, kafka_address(node)
            self._configs[broker_id] = replace(
                self._configs[broker_id],
                grpc_listener=node.grpc_address,
                listeners=tuple(f"{name}://{address}" for name, address in node.kafka_addresses.items()),
            )


def start_cluster(
    brokers: int = 3, data_dir: str | Path | None = None, *, kafka: bool = False, **config: Unpack[BrokerOptions]
) -> RunningCluster:
    """Start a cluster. Return it when every broker knows all others, or raise ConfigError if `config` is not valid.

    `config` takes configuration keys with underscores instead of dots, for all brokers. Broker ids start at 1. By
    default, topics have three replicas and min.insync.replicas=2; with fewer than three brokers, one replica per broker
    and min.insync.replicas=1. Without `data_dir`, the cluster uses a temporary folder. With `kafka`, Kafka clients can
    connect too.
    """
    folder = Path(data_dir or tempfile.mkdtemp(prefix="sparklog-"))
    keys = {
        "log.dirs": str(folder),
        "grpc.listener": "127.0.0.1:0",
        "listeners": "PLAINTEXT://127.0.0.1:0" if kafka else "",
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        **cluster_defaults(brokers),
    }
    try:
        shared = parsed("start_cluster", keys, config)
        configs = {
            number: parsed("start_cluster", keys, {**config, **broker_settings(shared, number)})
            for number in range(1, brokers + 1)
        }
        return RunningCluster.start(configs, folder, keep_data=data_dir is not None)
    except BaseException:
        if data_dir is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
