"""The controller's handlers for brokers and disks that come and go.

    broker came       send it the full state; its replicas go Online; elect leaders where none leads
    broker gone       elect other leaders for its partitions; then its replicas leave the ISR, except the last one in it
    broker restarted  both: it has registered again with another epoch
    log ends known    elect leaders of restored partitions (election.py)
    disk failed       ask the broker about all its replicas. Replicas with KAFKA_STORAGE_ERROR in its answer are treated
                      like those of a broker that is gone, until an answer has no error for them. A broker without room
                      or file descriptors asks for this request until it can open all of them

If several brokers fail at once, restarted ones leave the ISR first: they may have lost unflushed records that a broker
which is still down may have. Leaders check the published broker epochs (`cluster/broker_epochs.py`): the controller
removes an ended epoch there before it reads the ISRs that the broker must leave.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from sparklog.base.errors import KafkaStorageError
from sparklog.cluster.broker_epochs import read_broker_epochs
from sparklog.cluster.brokers import DISK_EVENTS
from sparklog.cluster.history import HistoryKind
from sparklog.cluster.model import BrokerInfo
from sparklog.controller.cluster_reading import read_brokers, read_notices
from sparklog.controller.context import PartitionAndReplica
from sparklog.controller.dependencies import ControllerDependencies, publish_broker_epochs
from sparklog.controller.operations import Operations
from sparklog.controller.partition_state_machine import read_again
from sparklog.controller.states import REPLICA_MOVES, PartitionState, ReplicaState
from sparklog.controller.store_watches import StoreEvent
from sparklog.replica.messages import LeaderAndIsr, LeaderAndIsrResponse, LogEnd

logger = logging.getLogger(__name__)


class BrokerChangeHandlers:
    """The handlers for broker changes of one controller, from its election to its end."""

    def __init__(self, dependencies: ControllerDependencies, operations: Operations) -> None:
        self._dependencies = dependencies
        self._context = dependencies.context
        self._operations = operations
        self._came: Mapping[int, BrokerInfo] = {}

    async def look(self) -> None:
        """Read the live brokers. A broker with another epoch than the published one has failed and restarted."""
        dependencies = self._dependencies
        published = await dependencies.store.read(read_broker_epochs)
        found = await dependencies.store.read(read_brokers, dependencies.watches)
        known = {each for each, broker in found.items() if published.epochs.get(each) == broker.epoch}
        for broker_id in sorted(known):
            self._open(found[broker_id])
        self._came = {each: broker for each, broker in found.items() if each not in known}
        self._note_epochs(
            self._came, published.epochs.keys() - found.keys(), published.epochs.keys() & self._came.keys()
        )
        await publish_broker_epochs(dependencies, self._context.brokers)

    async def begin(self) -> None:
        """Set the states of all partitions and replicas, elect missing leaders, and inform all brokers."""
        context, dependencies = self._context, self._dependencies
        dependencies.outbox.send_all_metadata(context.brokers)
        dependencies.outbox.flush()
        dependencies.partitions.begin()
        for replica in context.replicas(context.partitions()):
            is_online = context.is_online(replica.broker_id, replica.name)
            context.replica_states[replica] = ReplicaState.ONLINE if is_online else ReplicaState.DELETION_INELIGIBLE
        await dependencies.partitions.elect_missing_leaders()
        kept = context.replicas(context.partitions_kept())
        dead = {replica.broker_id for replica in kept} - context.brokers.keys() - self._came.keys()
        for gone in (self._came, dead):
            await self._move(_on(kept, gone), ReplicaState.OFFLINE)
        await self._move(_on(kept, context.brokers), ReplicaState.ONLINE)
        await self._bring_up(self._came)

    async def brokers_changed(self) -> None:
        """Read the live brokers, and handle those that came, went, or restarted."""
        dependencies, context = self._dependencies, self._context
        live = await dependencies.store.read(read_brokers, dependencies.watches)
        known = dict(context.brokers)
        again = sorted(each for each in live if each in known and live[each].epoch != known[each].epoch)
        dead = sorted(known.keys() - live.keys())
        came = sorted({*again, *live.keys() - known.keys()})
        if not (dead or came):
            return
        logger.info("brokers came: %s, gone: %s, restarted: %s", came, dead, again)
        self._note_epochs({each: live[each] for each in came}, dead, again)
        for broker_id in (*again, *dead):
            self._forget(broker_id)
        await publish_broker_epochs(dependencies, context.brokers)
        await read_again(context, dependencies.store, {each.name for each in context.replicas_on({*again, *dead})})
        dependencies.outbox.update_metadata()
        await self.replicas_failed(context.replicas_on(again))
        await self.replicas_failed(context.replicas_on(dead))
        dependencies.outbox.flush()
        await self._bring_up({each: live[each] for each in came})
        for operation in self._operations if came else ():
            await operation.brokers_came(came)

    def _note_epochs(self, came: Mapping[int, BrokerInfo], gone: Iterable[int], restarted: Collection[int]) -> None:
        for each in sorted(gone):
            self._dependencies.note(HistoryKind.BROKER_DOWN, broker=each)
        for each in sorted(came):
            self._dependencies.note(
                HistoryKind.BROKER_UP, broker=each, broker_epoch=came[each].epoch, restarted=each in restarted
            )

    async def replicas_failed(self, replicas: Collection[PartitionAndReplica]) -> None:
        """Elect other leaders for these replicas' partitions, and remove the replicas from the ISRs."""
        if not replicas:
            return
        context, dependencies = self._context, self._dependencies
        lost = [name for name in context.partitions_in(PartitionState.ONLINE) if not context.has_leader(name)]
        await dependencies.partitions.move(
            [name for name in lost if name.topic not in context.deleting], PartitionState.OFFLINE
        )
        await dependencies.partitions.elect_missing_leaders()
        await self._move([each for each in replicas if each.name.topic not in context.deleting], ReplicaState.OFFLINE)
        for operation in self._operations:
            await operation.replicas_failed(tuple(replicas))

    async def disks_failed(self) -> None:
        """Ask the brokers that reported a failed disk, or one that works again, about all their replicas."""
        dependencies = self._dependencies
        notices = await dependencies.store.read(read_notices, dependencies.watches, DISK_EVENTS, StoreEvent.DISKS)
        if not notices.paths:
            return
        asked = sorted({int(value["broker"]) for value in notices.values} & self._context.brokers.keys())
        for replica in self._context.replicas_on(asked):
            if replica.name.topic in self._context.deleting:
                self._context.offline.get(replica.broker_id, set()).discard(replica.name)
            elif replica.name in self._context.leadership:
                dependencies.outbox.leader_and_isr([replica.broker_id], replica.name)
        dependencies.outbox.flush()
        for operation in self._operations:
            await operation.brokers_came(asked)
        await dependencies.store.delete(notices.paths)

    async def leaders_answered(self, broker_id: int, request: LeaderAndIsr, response: LeaderAndIsrResponse) -> None:
        """Learn from a broker's answer which of its replicas are on a failed disk."""
        offline = self._context.offline.setdefault(broker_id, set())
        asked = {state.name for state in request.partitions}
        failed = {name for name in asked if isinstance(response.errors.get(name), KafkaStorageError)}
        newly = sorted(failed - offline)
        again = {name for name in offline & asked if name not in response.errors}
        offline -= again
        offline |= failed
        if newly:
            logger.warning("broker %s has lost the disk of %s", broker_id, newly)
            await self.replicas_failed([PartitionAndReplica(name, broker_id) for name in newly])
        if again:
            logger.info("broker %s has opened %s", broker_id, sorted(again))
            back = [name for name in sorted(again) if name.topic not in self._context.deleting]
            await self._move([PartitionAndReplica(name, broker_id) for name in back], ReplicaState.ONLINE)
            await self._dependencies.partitions.elect_missing_leaders()
        await self._elect_compared(broker_id, response.ends)

    async def _elect_compared(self, broker_id: int, ends: Collection[LogEnd]) -> None:
        """Elect leaders of restored partitions, once all their replicas have reported where their logs end."""
        context = self._context
        context.log_ends.setdefault(broker_id, {}).update({end.name: end for end in ends})
        told = [
            end.name
            for end in ends
            if context.is_restored(end.name)
            and end.name.topic not in context.deleting
            and all(end.name in context.log_ends.get(each, ()) for each in context.assignment(end.name).replicas)
        ]
        if told:
            await self._dependencies.partitions.move(told, PartitionState.ONLINE)

    def _open(self, broker: BrokerInfo) -> None:
        self._context.brokers[broker.broker_id] = broker
        self._dependencies.channels.open(broker)

    def _forget(self, broker_id: int) -> None:
        del self._context.brokers[broker_id]
        self._context.shutting_down.pop(broker_id, None)
        self._context.answered.pop(broker_id, None)
        self._context.offline.pop(broker_id, None)
        self._context.log_ends.pop(broker_id, None)
        self._dependencies.channels.close([broker_id])

    async def _bring_up(self, came: Mapping[int, BrokerInfo]) -> None:
        if not came:
            return
        context, dependencies = self._context, self._dependencies
        await publish_broker_epochs(dependencies, {**context.brokers, **came})
        for broker_id in sorted(came):
            self._open(came[broker_id])
        dependencies.outbox.update_metadata()
        dependencies.outbox.send_all_metadata(came)
        dependencies.outbox.flush()
        await self._move(_on(context.replicas(context.partitions_kept()), came), ReplicaState.ONLINE)
        await dependencies.partitions.elect_missing_leaders()

    async def _move(self, replicas: Iterable[PartitionAndReplica], target: ReplicaState) -> None:
        """Move the replicas whose state allows it; the others are being deleted."""
        state = self._context.replica_state
        await self._dependencies.replicas.move(
            [each for each in replicas if (state(each), target) in REPLICA_MOVES], target
        )


def _on(replicas: Iterable[PartitionAndReplica], brokers: Collection[int]) -> list[PartitionAndReplica]:
    return [replica for replica in replicas if replica.broker_id in brokers]
