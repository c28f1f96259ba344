"""The clients of a simulated cluster, as its scenario demands, each with its own name and random numbers.

Most clients record their operations in the history that the run checks. Clients of topics that are deleted and created
again, readers of tables, and guests have histories that are not checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.testing.sim.checks.history import History
from sparklog.testing.sim.clients.admin import SCRATCH_TOPICS, Administrator, Trimmer
from sparklog.testing.sim.clients.client import SimClient, Worker
from sparklog.testing.sim.clients.commits import NamedOffsetCommitter
from sparklog.testing.sim.clients.group_clients import GroupClient, KafkaGroupClient, PlainGroupClient
from sparklog.testing.sim.clients.members import (
    GuestMember,
    MemberGroup,
    SimClassicMember,
    SimConsumerMember,
    SimMember,
)
from sparklog.testing.sim.clients.merges import Merger
from sparklog.testing.sim.clients.moves import TopicMover
from sparklog.testing.sim.clients.snapshots import Snapshotter
from sparklog.testing.sim.clients.tables import CONSUMER_OFFSETS, TABLE, Compactor, TableProducer
from sparklog.testing.sim.clients.transactions import TransactionWorkers
from sparklog.testing.sim.clients.users import SimUser, UserConsumer, UserGroup, UserMember, UserProducer
from sparklog.testing.sim.clients.wire import WireConsumer, WireProducer
from sparklog.testing.sim.clients.workload import SimConsumer, SimGroup, SimProducer
from sparklog.testing.sim.cluster import SimCluster
from sparklog.testing.sim.faults import FaultKind
from sparklog.testing.sim.kafka import SimKafka
from sparklog.testing.sim.seed import Scenario

TOPIC = "log"
ALL_TOPICS = "^(log|scratch[0-9])$"
SCRATCH_PARTITIONS = [TopicPartition(topic, number) for topic in SCRATCH_TOPICS for number in (0, 1)]
OFFSETS_PARTITIONS = 2


class Workers:
    """All clients of a run."""

    def __init__(self, cluster: SimCluster, scenario: Scenario, history: History) -> None:
        self._cluster = cluster
        self._scenario = scenario
        self._history = history
        self._bootstrap = [node.name for node in cluster.nodes.values()]
        self.partitions = [TopicPartition(TOPIC, number) for number in range(scenario.partitions)]
        """The partitions that the run checks."""
        self.tables = [TopicPartition(TABLE, number) for number in range(scenario.partitions * scenario.compacts)]
        self._offsets = [TopicPartition(CONSUMER_OFFSETS, number) for number in range(OFFSETS_PARTITIONS)]
        self.compacted = [*self.tables, *self._offsets] if scenario.compacts else []
        self._consumers = [
            SimConsumer(self._client(f"consumer-{kind}-{name.partition}"), history, name, from_followers=share)
            for kind, share in (("a", 0.0), ("b", 0.5))
            for name in self.partitions
        ]
        users = [
            UserConsumer(self._user(f"reader-{name.partition}"), history, name, self._report)
            for name in (self.partitions if scenario.users else ())
        ]
        self.readers: list[SimConsumer | UserConsumer] = [*self._consumers, *users]
        """The consumers that each read one partition from its start, and to its end once the faults are over."""
        self.admin = Administrator(
            self._client("admin"),
            history,
            self.partitions,
            list(cluster.nodes),
            replication_factor=scenario.replication_factor,
        )
        self.commits = NamedOffsetCommitter(
            self._wire("named-commits"),
            cluster,
            replication_factor=scenario.replication_factor,
            replaces=scenario.commit_timeout_ms < 5_000,
        )
        self.moved_topics = TopicMover(self._client("mover"), cluster, replication_factor=scenario.replication_factor)
        self.transactions = self._transactions() if scenario.transacts else None
        self.members = list(self._groups_of_members())
        self.user_groups = list(self._groups_of_users())

    def work(self, is_over: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        """Return one coroutine for the work of each client."""
        watcher = SimGroup(self._client("watcher"), self._history, "group", self._consumers[0])
        readers = [
            UserConsumer(self._user(f"{name}-reader"), self._unchecked(), name, self._report) for name in self.tables
        ]
        return [
            *(worker.run(is_over) for worker in self._all()),
            watcher.watch(is_over),
            *(reader.run_again_and_again(is_over) for reader in readers if self._scenario.users),
        ]

    def reader_of_commits(self, group: str, partition: TopicPartition) -> SimGroup:
        """Return a client that can fetch a group's committed offset of a partition."""
        consumer = next(each for each in self._consumers if each.partition == partition)
        return SimGroup(self._client(f"{group}-reader"), self._history, group, consumer)

    def _all(self) -> Iterator[Worker]:
        scenario = self._scenario
        yield SimGroup(self._client("group"), self._history, "group", self._consumers[0])
        yield from (self._producer(number) for number in range(scenario.producers))
        yield from self.readers
        yield from (member for group in self.members for member in group)
        yield from (user for _, users in self.user_groups for user in users)
        if scenario.users:
            yield from self._user_producers()
            yield WireProducer(self._wire("wire-producer"), self._history, self.partitions)
            yield WireConsumer(self._wire("wire-consumer"), self._history, self.partitions, self._report)
        if scenario.administers:
            yield self.admin
            yield self._writer_of_other_topics()
            yield self.commits
        if scenario.moves:
            yield self.moved_topics
        if scenario.trims:
            yield Trimmer(self._client("trimmer"), self._history, self._consumers)
        if scenario.compacts:
            yield from (
                TableProducer(self._user(f"table-{name}"), self._history, self.tables, self._report) for name in (0, 1)
            )
            yield Compactor(self._client("compactor"), self.compacted)
        if scenario.snapshots:
            yield Snapshotter(self._client("snapshotter"), self._offsets)
        if scenario.guests and scenario.users:
            yield from (self._guest(group) for group, _ in self.user_groups)
        if self.transactions:
            yield from self.transactions
        if scenario.merges:
            yield Merger(self._client("merger"), self.partitions)

    def _transactions(self) -> TransactionWorkers:
        kinds = {fault.kind for fault in self._scenario.plan}
        return TransactionWorkers(
            self._cluster,
            self._history,
            may_leave_open=not kinds & {FaultKind.CLOCK, FaultKind.DRIFT},
            has_sink=self._scenario.sinks,
        )

    def _groups_of_members(self) -> Iterator[list[SimMember]]:
        """Yield one group for each protocol, if the scenario has members.

        Each member speaks Kafka's protocol or not, and is static or not. In some scenarios, the first member of the
        second group and some of the others subscribe to all topics that match a pattern.
        """
        chance, count = self._cluster.stream("members"), self._scenario.members
        if count:
            group = MemberGroup("classic", self._history, self.partitions)
            yield [
                SimClassicMember(self._group_client(f"classic-{number}"), group, chance.choice((None, f"i{number}")))
                for number in range(count)
            ]
            pattern = chance.choice((None, ALL_TOPICS))
            group = MemberGroup("consumer", self._history, self.partitions, pattern)
            yield [
                SimConsumerMember(
                    self._group_client(f"consumer-{number}"), group, chance.choice((None, f"i{number}")),
                    by_pattern=pattern is not None and (number == 0 or chance.random() < 0.5),
                )
                for number in range(count)
            ]  # fmt: skip

    def _group_client(self, name: str) -> GroupClient:
        if self._cluster.stream(f"{name}-protocol").random() < 0.5:
            return KafkaGroupClient(self._wire(name))
        return PlainGroupClient(self._client(name))

    def _groups_of_users(self) -> Iterator[tuple[UserGroup, list[UserMember]]]:
        """Yield an eager group that reads the checked topic, and a cooperative one that reads scratch topics too."""
        checked = self.partitions if self._scenario.keeps_all else ()
        eager = UserGroup("eager", self._history, topics=[TOPIC], checked=checked)
        stepwise = UserGroup("stepwise", self._history, pattern=ALL_TOPICS, checked=checked)
        for group, strategy in ((eager, "range"), (stepwise, "cooperative-sticky")):
            users = [self._user(f"{group.name}-{number}") for number in range(self._scenario.users)]
            if users:
                yield (
                    group,
                    [
                        UserMember(user, group, is_static=number % 2 == 0, strategy=strategy)
                        for number, user in enumerate(users)
                    ],
                )

    def _guest(self, group: UserGroup) -> GuestMember:
        """Return a guest of the group. Its history is not checked: the group's own members record their answers."""
        name = f"{group.name}-guest"
        client = PlainGroupClient(self._client(name))
        return GuestMember(client, MemberGroup(group.name, self._unchecked(), self.partitions))

    def _user_producers(self) -> Iterator[UserProducer]:
        acks = self._cluster.stream("acks").choice(("all", "1", "0"))
        checked = self._history, self.partitions, self._report
        yield UserProducer(self._user("user-0"), *checked, acks="all", bursts=self._scenario.bursts)
        yield UserProducer(self._user("user-1"), *checked, acks=acks)
        yield UserProducer(self._user("user-2"), self._unchecked(), SCRATCH_PARTITIONS, _ignore_report, acks="all")

    def _producer(self, number: int) -> SimProducer:
        return SimProducer(
            self._client(f"producer-{number}"),
            self._history,
            self.partitions,
            self._report,
            is_idempotent=number != 1,
            tries_again=self._scenario.seed % 2 == 0,
            says_epochs=self._scenario.is_unclean,
        )

    def _writer_of_other_topics(self) -> SimProducer:
        """Return a producer for the topics that the administrator deletes and creates again."""
        return SimProducer(
            self._client("scratch"), self._unchecked(), SCRATCH_PARTITIONS, self._report,
            is_idempotent=False, tries_again=False,
        )  # fmt: skip

    def _unchecked(self) -> History:
        return History(self._cluster.loop.time)

    def _report(self, kind: str, text: str) -> None:
        """Report a broken sequence or a truncation, unless there was an unclean election.

        Only after an unclean election may a leader lack what its clients have sent and read.
        """
        if not self._cluster.tree.unclean:
            self._cluster.report(kind, text)

    def _client(self, name: str) -> SimClient:
        return SimClient(name, self._cluster.network, self._bootstrap, self._cluster.stream(name))

    def _wire(self, name: str) -> SimKafka:
        return SimKafka(name, self._cluster.network, self._bootstrap, self._cluster.stream(name))

    def _user(self, name: str) -> SimUser:
        cluster = self._cluster
        return SimUser(name, cluster.loop, cluster.network, self._bootstrap, f"{cluster.seed}/{name}")


def _ignore_report(kind: str, text: str) -> None:
    """Ignore a finding: a topic that was created again does not know the sequence numbers of the deleted one."""
