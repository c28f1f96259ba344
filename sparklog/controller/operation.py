"""Operations that take the controller several steps: topic deletion, reassignment, preferred leader election.

An event starts each step. The controller's one task passes each event to all operations, in their order; the context
does not change meanwhile. The next controller must be able to continue an operation, so an operation's state is in the
cluster store, or can be read from it again.
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
        """Handle brokers that have registered and got their full state, when missing leaders have been elected; or that
        have asked for requests about their replicas again."""

    async def replicas_failed(self, replicas: Sequence[PartitionAndReplica]) -> None:
        """Handle replicas whose broker or disk has failed. Replicas of topics in deletion have kept their state."""

    async def topics_marked(self, topics: Collection[str]) -> None:
        """Handle all topics in `/admin/delete_topics`; some may be in deletion already, or not exist."""

    async def topics_deleted(self, topics: Collection[str]) -> None:
        """Handle topics that another writer has deleted from the store; the context has them no longer."""

    async def isr_changed(self, names: Collection[TopicPartition]) -> None:
        """Handle ISRs of partitions being reassigned that may have changed."""

    async def replicas_stopped(self, broker_id: int, errors: Mapping[TopicPartition, KafkaError | None]) -> None:
        """Handle an answer to StopReplica with deletion; None instead of an error: the replica is deleted."""

    async def broker_answered(self, broker_id: int) -> None:
        """Handle a broker's answer to any request: the broker was alive when it answered."""

    async def store_requests_changed(self) -> None:
        """Handle a change of `/admin/reassign_partitions` or `/admin/preferred_replica_election`."""

    async def tick(self) -> None:
        """Handle the clock: `interval_s` seconds have passed."""
