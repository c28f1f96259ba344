"""The controller's state as plain data, read from the cluster store at its election and kept up to date.

Only the controller's one task changes it. `leadership` may be older than the store's, because leaders change their ISRs
themselves. A write based on an old version then fails, as the store compares versions, and is decided again.

All lists are sorted, so that the same events lead to the same requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct, field

from sparklog.base.acls import AclBinding
from sparklog.base.client_metrics import ClientMetricsConfigs
from sparklog.base.ids import TopicPartition
from sparklog.base.quotas import ClientQuota
from sparklog.cluster.messages import TopicState
from sparklog.cluster.model import BrokerInfo, PartitionInfo, ReplicaAssignment
from sparklog.cluster.partition_states import Leadership
from sparklog.cluster.topics import without_leader
from sparklog.controller.states import PartitionState, ReplicaState
from sparklog.replica.messages import LogEnd

NOBODY = ReplicaAssignment(replicas=())


class PartitionAndReplica(NamedTuple):
    """One partition on one broker."""

    name: TopicPartition
    broker_id: int

    def __str__(self) -> str:
        return f"{self.name} on {self.broker_id}"


class ControllerContext(Struct, kw_only=True):
    """The state of the cluster in its controller."""

    epoch: int
    """Controller epoch, greater than that of any earlier controller."""
    epoch_version: int
    """Version of `/controller_epoch`, which every write checks."""

    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    """Registered brokers, including those that are shutting down."""
    shutting_down: dict[int, int] = field(default_factory=dict)
    """Brokers in a controlled shutdown, a part of `brokers`. They are not elected. The value is the number before that
    of the first request that was sent to the other brokers since."""
    answered: dict[int, int] = field(default_factory=dict)
    """Number of the last request that a broker has answered in its present epoch."""
    offline: dict[int, set[TopicPartition]] = field(default_factory=dict)
    """Partitions whose replica on a broker is on a failed disk, by broker."""
    broker_overrides: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    acls: frozenset[AclBinding] = frozenset()
    quotas: tuple[ClientQuota, ...] = ()
    client_metrics: ClientMetricsConfigs = field(default_factory=dict)
    log_ends: dict[int, dict[TopicPartition, LogEnd]] = field(default_factory=dict)
    """The ends of restored partitions' logs, by broker, until the broker restarts."""

    topic_ids: dict[str, UUID] = field(default_factory=dict)
    """All topics, including those in deletion."""
    overrides: dict[str, Mapping[str, str]] = field(default_factory=dict)
    assignments: dict[str, dict[int, ReplicaAssignment]] = field(default_factory=dict)
    leadership: dict[TopicPartition, Leadership] = field(default_factory=dict)
    partition_states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    replica_states: dict[PartitionAndReplica, ReplicaState] = field(default_factory=dict)

    reassigning: set[TopicPartition] = field(default_factory=set)
    new_isrs: set[TopicPartition] = field(default_factory=set)
    """Partitions of `reassigning` whose move may wait for the ISR, which was read again or set by an election."""
    deleting: set[str] = field(default_factory=set)
    """Topics in deletion: no leaders are elected for them."""
    deletion_begun: set[str] = field(default_factory=set)
    deletion_ineligible: set[str] = field(default_factory=set)
    """Topics of `deleting` that wait for a broker."""

    # Configurations

    def set_overrides(self, overrides: Mapping[str, Mapping[str, str]]) -> None:
        """Remember the keys that these topics override."""
        self.overrides.update(overrides)

    def set_broker_overrides(self, overrides: Mapping[int, Mapping[str, str]]) -> None:
        """Replace the keys that brokers override."""
        self.broker_overrides = overrides

    def set_acls(self, acls: frozenset[AclBinding]) -> None:
        """Replace the cluster's ACLs."""
        self.acls = acls

    def set_quotas(self, quotas: tuple[ClientQuota, ...]) -> None:
        """Replace the cluster's client quotas."""
        self.quotas = quotas

    def set_client_metrics(self, subscriptions: ClientMetricsConfigs) -> None:
        """Replace the cluster's subscriptions to metrics of clients."""
        self.client_metrics = subscriptions

    # Reassignments

    def note_isrs(self, names: Iterable[TopicPartition]) -> None:
        """Note the partitions of these that are being reassigned: their moves may wait for their new ISRs."""
        self.new_isrs |= self.reassigning.intersection(names)

    def take_isrs(self) -> set[TopicPartition]:
        """Return and forget what was noted."""
        taken, self.new_isrs = self.new_isrs, set()
        return taken

    # Deletions

    def begin_deletion(self, topics: Iterable[str]) -> None:
        """Put these topics in deletion: no leaders are elected for them any more."""
        self.deleting.update(topics)

    def suspend_deletion(self, topics: Iterable[str]) -> None:
        """Make the deletion of these topics wait for a broker."""
        self.deletion_ineligible.update(topics)

    def resume_deletion(self, topics: Iterable[str]) -> None:
        """End the wait of these topics."""
        self.deletion_ineligible.difference_update(topics)

    # Brokers

    @property
    def live_brokers(self) -> list[int]:
        """Brokers that can be elected, sorted."""
        return sorted(self.brokers.keys() - self.shutting_down.keys())

    def have_answered(self, number: int) -> set[int]:
        """Return the brokers that have answered a request with a greater number: they have been alive since then."""
        return {broker_id for broker_id, answered in self.answered.items() if answered > number}

    def is_online(self, broker_id: int, name: TopicPartition, *, with_shutting_down: bool = False) -> bool:
        """Return whether the broker is registered and its disk with the partition works."""
        if broker_id in self.shutting_down and not with_shutting_down:
            return False
        return broker_id in self.brokers and name not in self.offline.get(broker_id, ())

    def online_replicas(self, name: TopicPartition, *, with_shutting_down: bool = False) -> tuple[int, ...]:
        """Return the brokers of online replicas, in the order of the assignment."""
        return tuple(
            broker
            for broker in self.assignment(name).replicas
            if self.is_online(broker, name, with_shutting_down=with_shutting_down)
        )

    def recipients(self, name: TopicPartition) -> tuple[int, ...]:
        """Return the brokers to inform of a change: online replicas that are not shutting down, and any online leader.

        Followers that are shutting down get StopReplica instead: they would join the ISR only to leave it soon.
        """
        known = self.leadership.get(name)
        return tuple(
            broker
            for broker in self.online_replicas(name, with_shutting_down=True)
            if broker not in self.shutting_down or (known and known.leader == broker)
        )

    def begin_shutdown(self, broker_id: int, number: int) -> None:
        """Put a broker in a controlled shutdown. number: as `shutting_down` has it."""
        self.shutting_down[broker_id] = number

    # Topics and partitions

    def is_restored(self, name: TopicPartition) -> bool:
        """Return whether the store had lost the partition's ISR, and no leader has been elected since."""
        known = self.leadership.get(name)
        return known is not None and not known.isr

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions, sorted, including those of topics in deletion."""
        return [name for topic in sorted(self.assignments) for name in self.partitions_of(topic)]

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return a topic's partitions, sorted; none if it is not known."""
        return [TopicPartition(topic, number) for number in sorted(self.assignments.get(topic, ()))]

    def assignment(self, name: TopicPartition) -> ReplicaAssignment:
        """Return the partition's assignment, or NOBODY if the partition is not known."""
        return self.assignments.get(name.topic, {}).get(name.partition, NOBODY)

    def set_assignment(self, name: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Record a partition's replicas, as the store has them."""
        self.assignments.setdefault(name.topic, {})[name.partition] = assignment

    def has_leader(self, name: TopicPartition) -> bool:
        """Return whether the partition has a leader that is online."""
        known = self.leadership.get(name)
        return known is not None and self.is_online(known.leader, name, with_shutting_down=True)

    def partition_state(self, name: TopicPartition) -> PartitionState:
        """Return a partition's state; NON_EXISTENT if it has none."""
        return self.partition_states.get(name, PartitionState.NON_EXISTENT)

    def partitions_in(self, *states: PartitionState) -> list[TopicPartition]:
        """Return the partitions that are in one of the states, sorted."""
        return sorted(name for name, state in self.partition_states.items() if state in states)

    def partitions_kept(self) -> list[TopicPartition]:
        """Return the partitions of topics that are not in deletion."""
        return [name for name in self.partitions() if name.topic not in self.deleting]

    def add_topic(self, topic: str, topic_id: UUID, partitions: Iterable[ReplicaAssignment]) -> None:
        """Record a topic with its partitions, in their order; they have no states yet."""
        self.topic_ids[topic] = topic_id
        self.assignments[topic] = dict(enumerate(partitions))

    def remove_topic(self, topic: str) -> None:
        """Remove the topic, with the states of its partitions and replicas."""
        for replica in self.replicas_of(topic):
            self.replica_states.pop(replica, None)
        for name in self.partitions_of(topic):
            self.leadership.pop(name, None)
            self.partition_states.pop(name, None)
            self.reassigning.discard(name)
            for offline in self.offline.values():
                offline.discard(name)
            for ends in self.log_ends.values():
                ends.pop(name, None)
        for by_topic in (self.topic_ids, self.overrides, self.assignments):
            by_topic.pop(topic, None)
        for topics in (self.deleting, self.deletion_begun, self.deletion_ineligible):
            topics.discard(topic)

    def topic_state(self, topic: str) -> TopicState:
        """Return the topic's state for the brokers."""
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

    def replica_state(self, replica: PartitionAndReplica) -> ReplicaState:
        """Return a replica's state; NON_EXISTENT if it has none."""
        return self.replica_states.get(replica, ReplicaState.NON_EXISTENT)

    def replicas(self, names: Iterable[TopicPartition]) -> list[PartitionAndReplica]:
        """Return the replicas of partitions, in the order of the partitions and then of the brokers' ids."""
        return [
            PartitionAndReplica(name, broker) for name in names for broker in sorted(self.assignment(name).replicas)
        ]

    def replicas_of(self, topic: str) -> list[PartitionAndReplica]:
        """Return the replicas of all partitions of a topic, sorted."""
        return self.replicas(self.partitions_of(topic))

    def replicas_on(self, brokers: Collection[int]) -> list[PartitionAndReplica]:
        """Return the replicas of all partitions on these brokers, sorted."""
        return [replica for replica in self.replicas(self.partitions()) if replica.broker_id in brokers]

    def replicas_in(self, topic: str, *states: ReplicaState) -> list[PartitionAndReplica]:
        """Return a topic's replicas that are in one of the states, sorted."""
        return [replica for replica in self.replicas_of(topic) if self.replica_state(replica) in states]


class ClusterFigures(NamedTuple):
    """Figures of Kafka's controller (kafka.controller), with names in snake case."""

    brokers: int
    topics: int
    partitions: int
    leaderless_partitions: int
    """Kafka: OfflinePartitionsCount."""
    not_preferred_leaders: int
    """Kafka: PreferredReplicaImbalanceCount."""
    reassigning_partitions: int
    topics_to_delete: int


def count_figures(context: ControllerContext) -> ClusterFigures:
    """Return the figures. May be called on any thread at any time: each figure is right for some moment."""
    states = tuple(context.partition_states.values())
    led = tuple(context.leadership.items())
    return ClusterFigures(
        brokers=len(context.brokers),
        topics=len(context.topic_ids),
        partitions=len(states),
        leaderless_partitions=sum(state is not PartitionState.ONLINE for state in states),
        not_preferred_leaders=sum(
            context.assignment(name).replicas[:1] != (state.leader,)
            for name, state in led
            if name.topic not in context.deleting
        ),
        reassigning_partitions=len(context.reassigning),
        topics_to_delete=len(context.deleting),
    )
