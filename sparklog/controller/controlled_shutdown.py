"""Controlled shutdown: a stopping broker hands over its leaderships and leaves the ISRs.

    1. the broker is no longer elected (`shutting_down`) until it registers again, and no leader may add it to an ISR
       (`publish_broker_epochs`). All brokers get a request, by whose answers they show that they are alive
    2. partitions that it leads: another replica that is in sync and has answered becomes the leader, if there is one;
       the broker's replica leaves the ISR
    3. partitions that it follows: the broker is told to stop its replica, which leaves the ISR

A broker that has just lost power is still registered, and may have lost records that only the stopping broker has. So
the replica stays in the ISR until another member has answered. If all stay silent, their sessions end, and they leave
the ISR first. Step 2 waits for all members at first, as the first replica is to lead; when the broker repeats its
request, for one.

The answer has the partitions that the broker still leads, except those with a single replica, as no other broker could
lead them, and those whose ISR it cannot leave yet. The broker repeats the request while there are any.
"""

from __future__ import annotations

from sparklog.base.errors import BrokerNotAvailable, StaleBrokerEpoch
from sparklog.base.ids import TopicPartition
from sparklog.controller.context import ControllerContext, PartitionAndReplica
from sparklog.controller.dependencies import ControllerDependencies, publish_broker_epochs
from sparklog.controller.election import Election
from sparklog.controller.operation import ControllerOperation
from sparklog.controller.states import PartitionState, ReplicaState


class ControlledShutdowns(ControllerOperation):
    """The controlled shutdowns of one controller, from its election to its end."""

    def __init__(self, dependencies: ControllerDependencies) -> None:
        self._dependencies = dependencies
        self._context = dependencies.context
        self._alive: dict[int, set[int]] = {}
        """For each broker that has partitions left, the brokers that had answered when it handed over last."""

    async def shut_down(self, broker_id: int, broker_epoch: int) -> tuple[TopicPartition, ...]:
        """Shut a broker down; return the partitions that it still leads, or whose ISR it cannot leave yet.

        Raises BrokerNotAvailable or StaleBrokerEpoch, or what the state machines raise.
        """
        context, dependencies = self._context, self._dependencies
        broker = context.brokers.get(broker_id)
        if broker is None:
            raise BrokerNotAvailable(f"broker {broker_id} is not registered")
        if broker_epoch < broker.epoch:
            raise StaleBrokerEpoch(f"broker {broker_id} is at epoch {broker.epoch} by now, not at {broker_epoch}")
        is_first = broker_id not in context.shutting_down
        if is_first:
            context.begin_shutdown(broker_id, dependencies.outbox.ask_whether_alive())
            await publish_broker_epochs(dependencies, context.brokers)
            dependencies.outbox.flush()
        return await self._hand_over(broker_id, waits_for_all=is_first)

    async def broker_answered(self, broker_id: int) -> None:
        """Hand over partitions that wait for this broker."""
        for leaving, alive in list(self._alive.items()):
            if leaving not in self._context.shutting_down:
                del self._alive[leaving]
            elif broker_id not in alive and broker_id in self._have_answered(leaving):
                await self._hand_over(leaving, waits_for_all=True)

    async def _hand_over(self, leaving: int, *, waits_for_all: bool) -> tuple[TopicPartition, ...]:
        """Hand over what can be handed over now; return the rest."""
        context, dependencies = self._context, self._dependencies
        alive = self._have_answered(leaving)
        shared = _shared(context, leaving)
        led = []
        for name in _led(context, shared, leaving):
            staying = set(context.leadership[name].isr) - context.shutting_down.keys()
            if staying <= alive if waits_for_all else staying & alive:
                led.append(name)
        await dependencies.partitions.move(led, PartitionState.ONLINE, Election.CONTROLLED_SHUTDOWN)
        still_led = set(_led(context, shared, leaving))
        followed = [name for name in shared if name not in still_led]
        waiting = [name for name in followed if _is_last_alive(leaving, context.leadership[name].isr, alive)]
        stopped = set(followed).difference(waiting)
        await dependencies.replicas.move(
            [PartitionAndReplica(name, leaving) for name in sorted(stopped)], ReplicaState.OFFLINE
        )
        remaining = (*sorted(still_led), *waiting)
        if remaining:
            self._alive[leaving] = alive
        else:
            self._alive.pop(leaving, None)
        return remaining

    def _have_answered(self, leaving: int) -> set[int]:
        """Return the other brokers that have shown since the begin of this shutdown that they are alive."""
        return self._context.have_answered(self._context.shutting_down[leaving]) - {leaving}


def _is_last_alive(broker_id: int, isr: tuple[int, ...], alive: set[int]) -> bool:
    """Return whether the ISR has the broker and others, and none of the others is known to be alive."""
    return broker_id in isr and len(isr) > 1 and alive.isdisjoint(isr)


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
