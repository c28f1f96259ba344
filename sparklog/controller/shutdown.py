"""Controlled shutdown: a broker that is about to stop leads nothing any more, and nobody waits for it.

    1. it is elected for nothing from now on (`shutting_down`), until it is registered again; no leader may take it into
       an ISR any more (`epoch_publication.py`)
    2. partitions that it leads: a leader among the others that are online and in sync, if there is one; its replica
       leaves the ISR
    3. partitions that it follows: it is told to stop, and its replica leaves the ISR

What remains are the partitions that it leads still. Where it has the only replica there is nobody to take over, so it
does not remain. It may be asked again, as long as the broker wishes; what was done is not done twice.
"""

from __future__ import annotations

from sparklog.base.errors import BrokerNotAvailable, StaleBrokerEpoch
from sparklog.base.ids import TopicPartition
from sparklog.controller.context import ControllerContext, Replica
from sparklog.controller.dependencies import Dependencies
from sparklog.controller.election import Election
from sparklog.controller.epoch_publication import publish_broker_epochs
from sparklog.controller.states import PartitionState, ReplicaState


async def shut_down(parts: Dependencies, *, broker_id: int, broker_epoch: int) -> tuple[TopicPartition, ...]:
    """What the broker leads still; raises BrokerNotAvailable or StaleBrokerEpoch, or what the machines raise."""
    context = parts.context
    broker = context.brokers.get(broker_id)
    if broker is None:
        raise BrokerNotAvailable(f"broker {broker_id} is not registered")
    if broker_epoch < broker.epoch:
        raise StaleBrokerEpoch(f"broker {broker_id} is at epoch {broker.epoch} by now, not at {broker_epoch}")
    context.shutting_down.add(broker_id)
    await publish_broker_epochs(parts, context.brokers)
    shared = _shared(context, broker_id)
    await parts.partitions.move(_led(context, shared, broker_id), PartitionState.ONLINE, Election.CONTROLLED_SHUTDOWN)
    led = set(_led(context, shared, broker_id))
    followed = [Replica(name, broker_id) for name in shared if name not in led]
    await parts.replicas.move(followed, ReplicaState.OFFLINE)
    return tuple(_led(context, shared, broker_id))


def _shared(context: ControllerContext, broker_id: int) -> list[TopicPartition]:
    """The partitions that the broker has, and others too."""
    return [
        name
        for name in context.partitions()
        if name in context.leadership and name.topic not in context.deleting
        if broker_id in context.assignment(name).replicas and len(context.assignment(name).replicas) > 1
    ]


def _led(context: ControllerContext, names: list[TopicPartition], broker_id: int) -> list[TopicPartition]:
    return [name for name in names if context.leadership[name].leader == broker_id]
