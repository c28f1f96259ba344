"""The operations of a controller, in the order in which they get events, and the requests of brokers to them.

Controlled shutdown: a stopping broker hands over its leaderships and leaves the ISRs.

    1. the broker is no longer elected (`shutting_down`) until it registers again, and no leader may add it to an ISR
       (`publish_broker_epochs`)
    2. partitions that it leads: another replica that is online and in sync becomes the leader, if there is one; the
       broker's replica leaves the ISR
    3. partitions that it follows: the broker is told to stop its replica, which leaves the ISR

The answer has the partitions that the broker still leads, except those with a single replica, as no other broker could
lead them. The broker may repeat the request; no step is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from sparklog.base.errors import BrokerNotAvailable, KafkaError, StaleBrokerEpoch
from sparklog.base.ids import TopicPartition
from sparklog.controller.context import ControllerContext, PartitionAndReplica
from sparklog.controller.deletion import TopicDeletion
from sparklog.controller.dependencies import ControllerDependencies, publish_broker_epochs
from sparklog.controller.election import Election
from sparklog.controller.leader_elections import LeaderElections
from sparklog.controller.operation import ControllerOperation
from sparklog.controller.reassignment import Reassignments, Targets
from sparklog.controller.states import PartitionState, ReplicaState


class Operations(Struct, frozen=True, kw_only=True):
    """The operations of one controller, from its election to its end."""

    dependencies: ControllerDependencies
    reassignment: Reassignments
    deletion: TopicDeletion
    elections: LeaderElections

    def __iter__(self) -> Iterator[ControllerOperation]:
        """Iterate in the order of events. Deletion follows reassignment, as topics wait for the end of their moves."""
        return iter((self.reassignment, self.deletion, self.elections))

    async def reassign(self, targets: Targets, *, may_resize: bool) -> dict[TopicPartition, KafkaError | None]:
        """Begin moves of partitions, or cancel them (target None). Return an error, or None, for each partition."""
        answers = await self.reassignment.reassign(targets, may_resize=may_resize)
        await self.deletion.resume()
        return answers

    async def elect_leaders(
        self, names: Iterable[TopicPartition] | None, *, is_unclean: bool
    ) -> dict[TopicPartition, int | KafkaError]:
        """Elect leaders of these partitions; None: of all. Return the leader or the error of each."""
        return await self.elections.elect(names, is_unclean=is_unclean)

    async def shut_down(self, broker_id: int, broker_epoch: int) -> tuple[TopicPartition, ...]:
        """Move leaderships away from the broker. Return the partitions that it still leads."""
        return await shut_down(self.dependencies, broker_id=broker_id, broker_epoch=broker_epoch)


def begin_operations(dependencies: ControllerDependencies) -> Operations:
    """Return a new controller's operations; nothing has begun yet."""
    deletion = TopicDeletion(dependencies)
    return Operations(
        dependencies=dependencies,
        reassignment=Reassignments(dependencies, is_marked=deletion.is_marked),
        deletion=deletion,
        elections=LeaderElections(dependencies),
    )


async def shut_down(
    dependencies: ControllerDependencies, *, broker_id: int, broker_epoch: int
) -> tuple[TopicPartition, ...]:
    """Shut a broker down; return the partitions that it still leads.

    Raises BrokerNotAvailable or StaleBrokerEpoch, or what the state machines raise.
    """
    context = dependencies.context
    broker = context.brokers.get(broker_id)
    if broker is None:
        raise BrokerNotAvailable(f"broker {broker_id} is not registered")
    if broker_epoch < broker.epoch:
        raise StaleBrokerEpoch(f"broker {broker_id} is at epoch {broker.epoch} by now, not at {broker_epoch}")
    context.shutting_down.add(broker_id)
    await publish_broker_epochs(dependencies, context.brokers)
    shared = _shared(context, broker_id)
    await dependencies.partitions.move(
        _led(context, shared, broker_id), PartitionState.ONLINE, Election.CONTROLLED_SHUTDOWN
    )
    led = set(_led(context, shared, broker_id))
    followed = [PartitionAndReplica(name, broker_id) for name in shared if name not in led]
    await dependencies.replicas.move(followed, ReplicaState.OFFLINE)
    return tuple(_led(context, shared, broker_id))


def _shared(context: ControllerContext, broker_id: int) -> list[TopicPartition]:
    """Return the broker's partitions that also have replicas on other brokers."""
    return [
        name
        for name in context.partitions()
        if name in context.leadership and name.topic not in context.deleting
        if broker_id in context.assignment(name).replicas and len(context.assignment(name).replicas) > 1
    ]


def _led(context: ControllerContext, names: list[TopicPartition], broker_id: int) -> list[TopicPartition]:
    return [name for name in names if context.leadership[name].leader == broker_id]
