"""Figures of the cluster from its controller, for monitoring."""

from __future__ import annotations

from typing import NamedTuple

from sparklog.controller.context import ControllerContext
from sparklog.controller.states import PartitionState


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


def count(context: ControllerContext) -> ClusterFigures:
    """Count the figures. May be called on any thread at any time: each figure is right for some moment."""
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
