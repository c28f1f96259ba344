"""A cluster in this process: brokers on one event loop, over one cluster store, each with a log directory of its own.

    with start_cluster(3) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap)
        cluster.stop_broker(1)              # its leaderships move to others
        cluster.start_broker(1)             # as it was, at the same address

A broker stops cleanly here. To see one die, it must be a process: `sparklog up --brokers 3`, and kill.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, TypeVar

from sparklog.base.cluster_config import broker_settings, cluster_defaults
from sparklog.base.config import BrokerConfig
from sparklog.base.ids import TopicPartition
from sparklog.server.node import BrokerNode
from sparklog.testing.broker import kafka_address, parsed, start_node
from sparklog.testing.loop import BrokerLoop

ACQUAINTED_WITHIN_S = 60
OFFSETS_PARTITIONS = 5  # each with three replicas: Kafka's 50 are made for many groups, and take their time
Result = TypeVar("Result")


class RunningCluster:
    """Brokers that run until `stop`, or to the end of a `with` block."""

    def __init__(self, configs: Mapping[int, BrokerConfig], data_dir: Path, *, keep_data: bool) -> None:
        """`configs` are by the broker's id."""
        self.data_dir = data_dir
        """The folder with those of the brokers."""
        self._configs = dict(configs)
        self._nodes: dict[int, BrokerNode] = {}
        self._addresses: dict[int, tuple[str, str]] = {}
        self._keep_data = keep_data
        self._is_stopped = False
        self._loop = BrokerLoop("sparklog cluster")
        try:
            self.run(self._start(sorted(configs)))
        except BaseException:
            self.stop()
            raise

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers for clients, as HOST:PORT,…; also of those that do not run at the moment."""
        return ",".join(grpc for grpc, _ in self._addresses.values())

    @property
    def kafka(self) -> str:
        """The addresses for Kafka's clients; empty where there are none."""
        return ",".join(kafka for _, kafka in self._addresses.values() if kafka)

    @property
    def nodes(self) -> Mapping[int, BrokerNode]:
        """The brokers that run, by id."""
        return MappingProxyType(self._nodes)

    @property
    def controller_id(self) -> int:
        """Who the running brokers take for the controller; -1 if they know of none."""
        return self._some_node().broker.services.metadata.controller_id

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The id of the broker that leads, as the running brokers know it; -1: nobody."""
        leader = self._some_node().broker.services.metadata.leader_of(TopicPartition(topic, partition))
        return leader.broker_id if leader else -1

    def start_broker(self, broker_id: int) -> None:
        """Start a broker that was stopped, and return once all know it."""
        self.run(self._start([broker_id]))

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker cleanly, and return once all others know; what it leads moves to them."""
        self.run(self._stop(broker_id))

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """The outcome of a coroutine run on the brokers' event loop; not to be called from there."""
        return self._loop.run(coroutine)

    def stop(self) -> None:
        """Stop all cleanly, one after another; more than once does no harm."""
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
        """Wait until the broker knows who runs: a topic that is created then has all its replicas, and who was stopped
        leads nothing."""
        metadata = node.broker.services.metadata
        await metadata.wait_until(lambda: self._nodes.keys() == metadata.brokers.keys(), ACQUAINTED_WITHIN_S * 1000)

    def _keep_addresses(self, broker_id: int, node: BrokerNode) -> None:
        """Have the broker come back at the ports that the system chose."""
        if broker_id not in self._addresses:
            self._addresses[broker_id] = node.grpc_address, kafka_address(node)
            self._configs[broker_id] = replace(
                self._configs[broker_id],
                grpc_listener=node.grpc_address,
                listeners=tuple(f"{name}://{address}" for name, address in node.kafka_addresses.items()),
            )


def start_cluster(
    brokers: int = 3, data_dir: str | Path | None = None, *, kafka: bool = False, **config: Any
) -> RunningCluster:
    """Start a cluster and return once it is ready, each broker knowing all.

    `config` takes configuration keys with underscores for dots, for all brokers, whose ids are 1 and so on. Where
    they do not say otherwise, topics have three replicas (as many as there are brokers, with fewer), two of which must
    be in sync. Without `data_dir` the cluster has a temporary folder. With `kafka` Kafka's clients can connect too.
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
        return RunningCluster(configs, folder, keep_data=data_dir is not None)
    except BaseException:
        if data_dir is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
