"""Leader elections by request, preferred or unclean, and to balance leaderships.

The first of a partition's replicas is its preferred leader. Failures of brokers move leaderships to other brokers; an
election of the preferred leaders restores the balance of the assignment.

    by request      ElectLeaders: some partitions, or all; preferred, or unclean for partitions without a leader
    by the store    /admin/preferred_replica_election, as Apache Kafka's tools wrote it until 2.x:
                    {"version": 1, "partitions": [{"topic": "t", "partition": 0}]}; deleted afterwards
    automatic       every leader.imbalance.check.interval.seconds: if other brokers lead more than
                    leader.imbalance.per.broker.percentage of the partitions that prefer a broker, the broker is elected
                    for all of these partitions that it can lead now
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping

from sparklog.base.errors import (
    ElectionNotNeeded,
    InvalidTopic,
    KafkaError,
    NoNode,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.cluster.store import Delete, Store, find_node
from sparklog.controller.cluster_reading import PREFERRED_ELECTION
from sparklog.controller.context import ControllerContext
from sparklog.controller.dependencies import TOGETHER, ControllerDependencies
from sparklog.controller.election import Election, choose_preferred
from sparklog.controller.operation import ControllerOperation
from sparklog.controller.states import PartitionState
from sparklog.runtime.slices import of_many

logger = logging.getLogger(__name__)


class LeaderElections(ControllerOperation):
    """The leader elections of one controller, from its election to its end."""

    def __init__(self, dependencies: ControllerDependencies) -> None:
        config = dependencies.config
        self._context = dependencies.context
        self._store = dependencies.store
        self._partitions = dependencies.partitions
        self._slices = dependencies.slices
        self._percentage = config.leader_imbalance_per_broker_percentage
        if config.auto_leader_rebalance_enable:
            self.interval_s = config.leader_imbalance_check_interval_seconds

    async def elect(
        self, names: Iterable[TopicPartition] | None, *, is_unclean: bool = False
    ) -> dict[TopicPartition, int | KafkaError]:
        """Elect leaders of these partitions; None: of all. Return the leader or the error of each."""
        answers: dict[TopicPartition, int | KafkaError] = {}
        electable = []

        async def sort(some: Iterable[TopicPartition]) -> None:
            for name in some:
                if error := self._refusal(name, is_unclean=is_unclean):
                    answers[name] = error
                else:
                    electable.append(name)

        requested = list(self._context.partitions() if names is None else dict.fromkeys(names))
        await self._slices.each(of_many(requested, TOGETHER), sort)
        election = Election.UNCLEAN if is_unclean else Election.PREFERRED
        errors = await self._partitions.move(electable, PartitionState.ONLINE, election)
        for name in electable:
            answers[name] = errors.get(name) or self._context.leadership[name].leader
        return answers

    async def store_requests_changed(self) -> None:
        """Hold the elections of /admin/preferred_replica_election, if it exists, and delete it."""
        node = await self._store.read(_read)
        if node is None:
            return
        for name, answer in (await self.elect(node)).items():
            if isinstance(answer, KafkaError) and not isinstance(answer, ElectionNotNeeded):
                logger.warning("%s: its preferred replica does not lead: %s", name, answer)
        try:
            await self._store.multi([Delete(PREFERRED_ELECTION)])
        except NoNode:
            logger.info("%s was deleted by somebody else", PREFERRED_ELECTION)

    async def tick(self) -> None:
        """Elect brokers that lead too few of the partitions that prefer them."""
        for broker, names in imbalanced(self._context, self._percentage).items():
            ready = [name for name in names if _is_ready(self._context, name)]
            logger.info("broker %d leads too few of its partitions: electing it for %d", broker, len(ready))
            await self._partitions.move(ready, PartitionState.ONLINE, Election.PREFERRED)

    def _refusal(self, name: TopicPartition, *, is_unclean: bool) -> KafkaError | None:
        context = self._context
        if not context.assignment(name).replicas:
            return UnknownTopicOrPartition(f"there is no partition {name}")
        if name.topic in context.deleting:
            return InvalidTopic(f"topic {name.topic!r} is being deleted")
        if is_unclean:
            is_needed = not context.has_leader(name)
        else:
            known = context.leadership.get(name)
            is_needed = known is None or known.leader != context.assignment(name).replicas[0]
        return None if is_needed else ElectionNotNeeded("Leader election not needed for topic partition.")


def imbalanced(context: ControllerContext, percentage: int) -> dict[int, list[TopicPartition]]:
    """Return the partitions that prefer a broker and have another leader, for brokers with more than `percentage` %."""
    preferring: dict[int, list[TopicPartition]] = {}
    for name in context.partitions():
        if name.topic not in context.deleting and name in context.leadership:
            preferring.setdefault(context.assignment(name).replicas[0], []).append(name)
    elsewhere = {
        broker: [name for name in names if context.leadership[name].leader != broker]
        for broker, names in sorted(preferring.items())
    }
    return {
        broker: names for broker, names in elsewhere.items() if len(names) * 100 > len(preferring[broker]) * percentage
    }


def _is_ready(context: ControllerContext, name: TopicPartition) -> bool:
    """Return whether the partition's first replica could lead it now."""
    replicas, isr = context.assignment(name).replicas, context.leadership[name].isr
    return choose_preferred(replicas, isr, context.online_replicas(name)) is not None


def _read(store: Store) -> list[TopicPartition] | None:
    """Return the requested partitions: empty if the data is invalid, None if there is no such node."""
    node = find_node(store, PREFERRED_ELECTION)
    if node is None:
        return None
    try:
        value: Mapping[str, list[Mapping[str, object]]] = json.loads(node.data)
        return [TopicPartition(str(part["topic"]), int(str(part["partition"]))) for part in value["partitions"]]
    except (ValueError, KeyError, TypeError):
        logger.warning("%s makes no sense: %r", PREFERRED_ELECTION, node.data[:200])
        return []
