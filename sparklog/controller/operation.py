"""Operations that take the controller several steps: topic deletion, reassignment, preferred leader election.

An event starts each step. The controller's one task passes each event to all operations, in their order; nothing else
changes the context meanwhile. The next controller must be able to continue an operation. So the cluster store has all
that it needs, and a set that an operation keeps for itself (TopicDeletion) can be read from the store again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.controller.context import PartitionAndReplica


class ControllerOperation:
    """Base class whose handlers do nothing: an operation overrides those that it needs."""

    interval_s: int | None = None
    """Interval between calls of `tick`, in seconds; None: no calls."""

    async def resume(self) -> None:
        """Continue pending work: this controller was elected and has informed all brokers."""

    async def brokers_came(self, brokers: Collection[int]) -> None:
        """Handle brokers that have registered, got their whole state, and lead partitions without another leader."""

    async def replicas_failed(self, replicas: Sequence[PartitionAndReplica]) -> None:
        """Handle replicas whose broker or disk has failed. Those of topics in deletion have not changed their state."""

    async def topics_marked(self, topics: Collection[str]) -> None:
        """Handle all topics in `/admin/delete_topics`; some may already be known or not exist."""

    async def topics_gone(self, topics: Collection[str]) -> None:
        """Handle topics that another writer deleted; they are gone from the store and from the context."""

    async def isr_changed(self, names: Collection[TopicPartition]) -> None:
        """Handle changed ISRs; the context has already been updated from the store."""

    async def replicas_stopped(self, broker_id: int, errors: Mapping[TopicPartition, KafkaError | None]) -> None:
        """Handle an answer to StopReplica; an error of None means that the broker has deleted the replica."""

    async def asked_in_store(self) -> None:
        """Handle a change of `/admin/reassign_partitions` or `/admin/preferred_replica_election`."""

    async def tick(self) -> None:
        """Handle the clock: `interval_s` seconds have passed."""
