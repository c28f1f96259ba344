"""Three brokers as processes, one cluster: what tests kill, pause and start again, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import grpc

from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin
from sparklog.client.admin.descriptions import ClusterDescription, TopicDescription
from sparklog.v1.groups_pb2 import FindCoordinatorRequest
from sparklog.v1.groups_pb2_grpc import GroupsStub
from support.patience import wait_until
from support.processes.broker import BrokerProcess

SETTINGS = {
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "cluster.store.session.timeout.ms": 2_000,
    "zookeeper.session.timeout.ms": 4_000,
    "replica.lag.time.max.ms": 3_000,
    "replica.fetch.backoff.ms": 100,
    "replica.socket.timeout.ms": 2_000,
    "controller.socket.timeout.ms": 2_000,
    "controlled.shutdown.retry.backoff.ms": 500,
    "auto.leader.rebalance.enable": "false",
}
"""Quick to notice, so that a test is: a broker that is paused is taken for dead after two seconds."""
TRY_S = 5
IMPATIENT = {"default_api_timeout_ms": 1_000 * TRY_S, "request_timeout_ms": 1_000 * TRY_S}
"""A broker may hang: then another is asked, again and again."""
Found = TypeVar("Found")


class ClusterProcesses:
    """Brokers 1, 2 and 3, from the beginning of a `with` block to its end."""

    def __init__(
        self, folder: Path, *, zookeeper: str = "", log_dirs: tuple[str, ...] = ("data",), **settings: Any
    ) -> None:
        """`settings` have underscores for dots. Without `zookeeper` the brokers share a SQLite file."""
        store = f"zookeeper.connect={zookeeper}" if zookeeper else f"cluster.store={folder / 'cluster.sqlite'}"
        shared = SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}
        self.brokers: Mapping[int, BrokerProcess] = {
            number: BrokerProcess(
                folder / f"broker-{number}",
                f"broker.id={number}",
                store,
                *(f"{key}={value}" for key, value in shared.items()),
                log_dirs=log_dirs,
            )
            for number in (1, 2, 3)
        }
        self.zookeeper: object = None
        """The server, where a test has one."""
        for number in self.brokers:
            (folder / f"broker-{number}").mkdir()

    @property
    def grpc(self) -> str:
        return ",".join(broker.grpc for broker in self.brokers.values())

    @property
    def kafka(self) -> str:
        return ",".join(broker.kafka for broker in self.brokers.values())

    def __enter__(self) -> ClusterProcesses:
        try:
            for broker in self.brokers.values():
                broker.launch()
            for broker in self.brokers.values():
                broker.await_ready()
            self.wait_for_brokers(3)
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill_all()

    def make_whole(self) -> None:
        """Start what a test that failed has left killed or paused."""
        for broker in self.brokers.values():
            if broker.is_paused:
                broker.resume()
            if not broker.is_running:
                broker.start()
        self.wait_for_brokers(len(self.brokers))

    def _kill_all(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()

    @property
    def logs(self) -> str:
        """The end of each broker's log."""
        return "\n".join(f"--- broker {each}\n{broker.log[-5_000:]}" for each, broker in self.brokers.items())

    # What it looks like now

    def describe(self) -> ClusterDescription:
        return self._ask(Admin.describe_cluster)

    def topic(self, name: str) -> TopicDescription:
        def ask(admin: Admin) -> TopicDescription:
            [found] = admin.describe_topics([name])
            return found

        return self._ask(ask)

    def controller(self) -> int:
        """Waits until a broker that runs is it."""
        return self.wait(lambda: self._running(self.describe().controller_id), "a broker that runs is the controller")

    def leader(self, topic: str, partition: int = 0) -> int:
        """Waits until a broker that runs is it."""
        what = f"a broker that runs leads {topic}-{partition}"
        return self.wait(lambda: self._running(self.topic(topic).partitions[partition].leader), what)

    def coordinator(self, group: str) -> int:
        """Waits until a broker that runs is it."""

        def find() -> int | None:
            for broker in self._answering():
                with grpc.insecure_channel(broker.grpc) as channel:
                    answer = GroupsStub(channel).FindCoordinator(
                        FindCoordinatorRequest(group_ids=[group]), timeout=TRY_S
                    )
                return self._running(answer.coordinators[0].broker_id)
            return None

        return self.wait(find, f"a broker that runs coordinates group {group}")

    # Waiting

    def wait_for_brokers(self, count: int) -> None:
        """Until every broker that answers knows so many, and who the controller is."""
        for broker in self._answering():
            self.wait(lambda address=broker.grpc: self._knows(address, count), f"{broker} knows {count} brokers")

    def wait_for_isr(self, count: int, *topics: str) -> None:
        """Until so many replicas of each partition are in sync, and one leads."""

        def in_sync() -> bool:
            parts = [part for name in topics for part in self.topic(name).partitions]
            return all(len(part.in_sync_replicas) == count and part.leader > 0 for part in parts)

        self.wait(in_sync, f"{count} replicas of {', '.join(topics)} are in sync")

    def wait(self, find: Callable[[], Found | None], what: str = "it is as the test waits for it") -> Found:
        """What `find` finds, tried again while it finds nothing or no broker can tell; `what` it waits for is told."""
        last: object = None

        def try_to_find() -> Found | None:
            nonlocal last
            try:
                last = found = find()
                return found
            except (SparklogError, grpc.RpcError) as error:
                last = error
                return None

        return wait_until(try_to_find, what, tell=lambda: f"the last time: {last!r}\n{self.logs}", every_s=0.05)

    def _knows(self, address: str, count: int) -> bool:
        with Admin(bootstrap_servers=address, **IMPATIENT) as admin:
            found = admin.describe_cluster()
            return len(found.brokers) == count and found.controller_id in self.brokers

    def _running(self, broker_id: int) -> int | None:
        broker = self.brokers.get(broker_id)
        return broker_id if broker and broker.is_running and not broker.is_paused else None

    def _answering(self) -> list[BrokerProcess]:
        return [each for each in self.brokers.values() if each.is_running and not each.is_paused]

    def _ask(self, ask: Callable[[Admin], Found]) -> Found:
        """What the brokers that are not known to be dead or paused say."""
        addresses = [each.grpc for each in self._answering()]
        with Admin(bootstrap_servers=addresses, **IMPATIENT) as admin:
            return ask(admin)


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]
