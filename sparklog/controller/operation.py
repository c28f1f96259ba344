"""What takes the controller several steps: deleting a topic, moving a partition, giving leaderships back.

Each step is begun by something that has happened. `ActiveController` tells every operation, in their order, one thing
after the other on the controller's one task; nobody else changes the context meanwhile. An operation keeps nothing that
the cluster store or the context does not have, as the next controller has to go on with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.controller.context import Replica


class Operation:
    """As it stands, it does nothing: an operation overrides what it waits for."""

    interval_s: int | None = None
    """How often it is called by the clock; None: never."""

    async def resume(self) -> None:
        """This controller was elected, and everybody has been told: go on with what has been begun."""

    async def brokers_came(self, brokers: Collection[int]) -> None:
        """They are registered, have been told everything, and lead what nobody else could."""

    async def replicas_failed(self, replicas: Sequence[Replica]) -> None:
        """Their brokers, or their disks, are gone. Those of topics that are being deleted are as they were."""

    async def topics_marked(self, topics: Collection[str]) -> None:
        """These stand in `/admin/delete_topics`, all of them; some may be known, or not exist."""

    async def topics_gone(self, topics: Collection[str]) -> None:
        """They are no longer in the store, nor in the context: somebody else has deleted them."""

    async def isr_changed(self, names: Collection[TopicPartition]) -> None:
        """The context has their ISR as the store has it now."""

    async def replicas_stopped(self, broker_id: int, errors: Mapping[TopicPartition, KafkaError | None]) -> None:
        """The broker has answered StopReplica; None: it has deleted the replica, as it was told to."""

    async def asked_in_store(self) -> None:
        """`/admin/reassign_partitions` or `/admin/preferred_replica_election` has changed."""

    async def tick(self) -> None:
        """`interval_s` have passed."""
