"""All that the controller knows, as plain data: read from the cluster store when it is elected, and kept up to date.

Changed only by the controller's one task. What is here of the store was read there or written there: `leadership` may
be older than the store's, as leaders change their ISR themselves; a write that was decided on it then fails, as its
version is compared, and is decided again.

Whatever decides an order here is sorted, so the same events lead to the same requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from sparklog.base.ids import TopicPartition
from sparklog.cluster.messages import TopicState
from sparklog.cluster.model import BrokerInfo, PartitionInfo, ReplicaAssignment
from sparklog.cluster.partition_states import Leadership
from sparklog.cluster.topics import without_leader
from sparklog.controller.states import PartitionState, ReplicaState

NOBODY = ReplicaAssignment(replicas=())


class Replica(NamedTuple):
    """One partition on one broker."""

    name: TopicPartition
    broker_id: int

    def __str__(self) -> str:
        return f"{self.name} on {self.broker_id}"


@dataclass(slots=True, kw_only=True)
class ControllerContext:
    """The cluster as its controller sees it."""

    epoch: int
    """The controller's own: greater than that of any before it."""
    epoch_version: int
    """Of `/controller_epoch`: every write checks it."""

    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    """Those that are registered, those that are shutting down included."""
    shutting_down: set[int] = field(default_factory=set)
    """Those of `brokers` that have asked for a controlled shutdown: they are not elected."""
    offline: dict[int, set[TopicPartition]] = field(default_factory=dict)
    """Replicas whose disk has failed, by their broker."""
    broker_overrides: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    topic_ids: dict[str, UUID] = field(default_factory=dict)
    """All topics, those that are being deleted included."""
    overrides: dict[str, Mapping[str, str]] = field(default_factory=dict)
    assignments: dict[str, dict[int, ReplicaAssignment]] = field(default_factory=dict)
    leadership: dict[TopicPartition, Leadership] = field(default_factory=dict)
    partition_states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    replica_states: dict[Replica, ReplicaState] = field(default_factory=dict)

    reassigning: set[TopicPartition] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)
    """Topics that are to be deleted: no leader is elected for them any more."""
    deletion_begun: set[str] = field(default_factory=set)
    deletion_ineligible: set[str] = field(default_factory=set)
    """Those of `deleting` that wait for a broker, or for a reassignment."""

    # Brokers

    @property
    def live_brokers(self) -> list[int]:
        """Those that can be elected."""
        return sorted(self.brokers.keys() - self.shutting_down)

    def is_online(self, broker_id: int, name: TopicPartition, *, with_shutting_down: bool = False) -> bool:
        """Whether the broker is there, and its disk with the partition works."""
        if broker_id in self.shutting_down and not with_shutting_down:
            return False
        return broker_id in self.brokers and name not in self.offline.get(broker_id, ())

    def online_replicas(self, name: TopicPartition, *, with_shutting_down: bool = False) -> tuple[int, ...]:
        """In the order of the assignment."""
        return tuple(
            broker
            for broker in self.assignment(name).replicas
            if self.is_online(broker, name, with_shutting_down=with_shutting_down)
        )

    def recipients(self, name: TopicPartition) -> tuple[int, ...]:
        """Who is told that the partition has changed: who is online; of those that are shutting down, only its leader.

        The others are told to stop: who began to follow would get into the ISR, and be gone the next moment.
        """
        known = self.leadership.get(name)
        return tuple(
            broker
            for broker in self.online_replicas(name, with_shutting_down=True)
            if broker not in self.shutting_down or (known and known.leader == broker)
        )

    # Topics and partitions

    def partitions(self) -> list[TopicPartition]:
        return [name for topic in sorted(self.assignments) for name in self.partitions_of(topic)]

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in sorted(self.assignments.get(topic, ()))]

    def assignment(self, name: TopicPartition) -> ReplicaAssignment:
        """NOBODY has a partition that is not known."""
        return self.assignments.get(name.topic, {}).get(name.partition, NOBODY)

    def set_assignment(self, name: TopicPartition, assignment: ReplicaAssignment) -> None:
        self.assignments.setdefault(name.topic, {})[name.partition] = assignment

    def has_leader(self, name: TopicPartition) -> bool:
        """Whether it has one that is online."""
        known = self.leadership.get(name)
        return known is not None and self.is_online(known.leader, name, with_shutting_down=True)

    def partition_state(self, name: TopicPartition) -> PartitionState:
        return self.partition_states.get(name, PartitionState.NON_EXISTENT)

    def partitions_in(self, *states: PartitionState) -> list[TopicPartition]:
        return sorted(name for name, state in self.partition_states.items() if state in states)

    def partitions_kept(self) -> list[TopicPartition]:
        """Those of topics that are not being deleted."""
        return [name for name in self.partitions() if name.topic not in self.deleting]

    def add_topic(self, topic: str, topic_id: UUID, partitions: Iterable[ReplicaAssignment]) -> None:
        self.topic_ids[topic] = topic_id
        self.assignments[topic] = dict(enumerate(partitions))

    def remove_topic(self, topic: str) -> None:
        """Forget everything about it."""
        for replica in self.replicas_of(topic):
            self.replica_states.pop(replica, None)
        for name in self.partitions_of(topic):
            self.leadership.pop(name, None)
            self.partition_states.pop(name, None)
            self.reassigning.discard(name)
            for offline in self.offline.values():
                offline.discard(name)
        for by_topic in (self.topic_ids, self.overrides, self.assignments):
            by_topic.pop(topic, None)
        for topics in (self.deleting, self.deletion_begun, self.deletion_ineligible):
            topics.discard(topic)

    def topic_state(self, topic: str) -> TopicState:
        """The topic as all brokers are to know it."""
        return TopicState(
            name=topic,
            topic_id=self.topic_ids[topic],
            partitions=tuple(self._info(name) for name in self.partitions_of(topic)),
            overrides=self.overrides.get(topic, {}),
        )

    def _info(self, name: TopicPartition) -> PartitionInfo:
        assignment, known = self.assignment(name), self.leadership.get(name)
        if known is None:
            return without_leader(assignment)
        return PartitionInfo(
            leader=known.leader,
            leader_epoch=known.leader_epoch,
            replicas=assignment.replicas,
            in_sync_replicas=known.isr,
            adding=assignment.adding,
            removing=assignment.removing,
            partition_epoch=known.version,
        )

    # Replicas

    def replica_state(self, replica: Replica) -> ReplicaState:
        return self.replica_states.get(replica, ReplicaState.NON_EXISTENT)

    def replicas(self, names: Iterable[TopicPartition]) -> list[Replica]:
        return [Replica(name, broker) for name in names for broker in sorted(self.assignment(name).replicas)]

    def replicas_of(self, topic: str) -> list[Replica]:
        return self.replicas(self.partitions_of(topic))

    def replicas_on(self, brokers: Collection[int]) -> list[Replica]:
        return [replica for replica in self.replicas(self.partitions()) if replica.broker_id in brokers]

    def replicas_in(self, topic: str, *states: ReplicaState) -> list[Replica]:
        return [replica for replica in self.replicas_of(topic) if self.replica_state(replica) in states]
