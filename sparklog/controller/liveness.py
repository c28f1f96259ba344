"""Brokers and disks that come and go, and what that means for the partitions that they have.

    came    told everything, before anything else; its replicas go online; what nobody led gets a leader
    gone    what it led gets another leader; then its replicas leave the ISR, but for the last one in it
    came again with another epoch      both, as if it had been gone in between
    a disk failed      the broker is asked about all its replicas; those that its answer names with KAFKA_STORAGE_ERROR
                       are gone, as if the broker were, until an answer names them without

Of brokers that are gone at once, those that came again leave the ISR first: they may have lost what was not flushed,
which one that is still away may have. Then the node `/brokers/epochs` is written: see cluster_reading.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from sparklog.base.errors import KafkaStorageError
from sparklog.cluster.model import BrokerInfo
from sparklog.controller.cluster_reading import DISK_EVENTS, deletions_of, read_brokers, read_notices, write_epochs
from sparklog.controller.context import Replica
from sparklog.controller.operations import Operations
from sparklog.controller.parts import Parts
from sparklog.controller.states import REPLICA_MOVES, PartitionState, ReplicaState
from sparklog.controller.watching import StoreEvent
from sparklog.replica.messages import LeaderAndIsr, LeaderAndIsrResponse

logger = logging.getLogger(__name__)


class Liveness:
    """Of one controller, from its election to its end."""

    def __init__(self, parts: Parts, operations: Operations) -> None:
        self._parts = parts
        self._context = parts.context
        self._operations = operations
        self._remembered: Mapping[int, int] = {}

    async def begin(self, brokers: Mapping[int, BrokerInfo], epochs: Mapping[int, int]) -> None:
        """Bring all replicas into a state, elect where nobody leads, and tell everybody.

        `epochs`: the lives that an earlier controller knew. Who lives another one has failed and come back since.
        """
        context, parts = self._context, self._parts
        self._remembered = epochs
        for broker in brokers.values():
            if epochs.get(broker.broker_id) == broker.epoch:
                self._open(broker)
        parts.outbox.everything(context.brokers)
        parts.outbox.flush()
        parts.partitions.begin()
        for replica in context.replicas(context.partitions()):
            is_online = context.is_online(replica.broker_id, replica.name)
            context.replica_states[replica] = ReplicaState.ONLINE if is_online else ReplicaState.DELETION_INELIGIBLE
        await parts.partitions.elect_where_nobody_leads()
        came = sorted(brokers.keys() - context.brokers.keys())
        offline = context.partitions_kept()
        for gone in (came, [each for each in _assigned(context.replicas(offline)) if each not in brokers]):
            await self._move(_on(context.replicas(offline), gone), ReplicaState.OFFLINE)
        await self._move(_on(context.replicas(offline), context.brokers), ReplicaState.ONLINE)
        await self._bring_up([brokers[each] for each in came])
        await self._remember()

    async def brokers_changed(self) -> None:
        parts, context = self._parts, self._context
        live = await parts.store.read(read_brokers, parts.watching)
        known = dict(context.brokers)
        again = sorted(each for each in live if each in known and live[each].epoch != known[each].epoch)
        dead = sorted(known.keys() - live.keys())
        came = sorted({*again, *live.keys() - known.keys()})
        if not (dead or came):
            return
        logger.info("brokers came: %s, gone: %s, restarted: %s", came, dead, again)
        for broker_id in (*again, *dead):
            self._forget(broker_id)
        parts.outbox.update_metadata()
        await self.replicas_failed(context.replicas_on(again))
        await self.replicas_failed(context.replicas_on(dead))
        parts.outbox.flush()
        await self._bring_up([live[each] for each in came])
        await self._remember()
        for operation in self._operations if came else ():
            await operation.brokers_came(came)

    async def replicas_failed(self, replicas: Collection[Replica]) -> None:
        """Give what they led another leader, and take them out of the ISR."""
        if not replicas:
            return
        context, parts = self._context, self._parts
        lost = [name for name in context.partitions_in(PartitionState.ONLINE) if not context.has_leader(name)]
        await parts.partitions.move(
            [name for name in lost if name.topic not in context.deleting], PartitionState.OFFLINE
        )
        await parts.partitions.elect_where_nobody_leads()
        await self._move([each for each in replicas if each.name.topic not in context.deleting], ReplicaState.OFFLINE)
        for operation in self._operations:
            await operation.replicas_failed(tuple(replicas))

    async def disks_failed(self) -> None:
        """Ask the brokers that say so about all their replicas."""
        parts = self._parts
        notices = await parts.store.read(read_notices, parts.watching, DISK_EVENTS, StoreEvent.DISKS)
        if not notices.paths:
            return
        for broker_id in sorted({int(value["broker"]) for value in notices.values} & self._context.brokers.keys()):
            for replica in self._context.replicas_on([broker_id]):
                if replica.name in self._context.leadership and replica.name.topic not in self._context.deleting:
                    parts.outbox.leader_and_isr([broker_id], replica.name)
        parts.outbox.flush()
        await parts.store.multi(deletions_of(notices.paths))

    async def leaders_answered(self, broker_id: int, request: LeaderAndIsr, response: LeaderAndIsrResponse) -> None:
        """Which of the broker's replicas are on a disk that works."""
        offline = self._context.offline.setdefault(broker_id, set())
        asked = {state.name for state in request.partitions}
        failed = {name for name in asked if isinstance(response.errors.get(name), KafkaStorageError)}
        newly = sorted(failed - offline)
        offline.difference_update(name for name in asked if name not in response.errors)
        offline.update(failed)
        if newly:
            logger.warning("broker %s has lost the disk of %s", broker_id, newly)
            await self.replicas_failed([Replica(name, broker_id) for name in newly])

    def _open(self, broker: BrokerInfo) -> None:
        self._context.brokers[broker.broker_id] = broker
        self._parts.channels.open(broker)

    def _forget(self, broker_id: int) -> None:
        del self._context.brokers[broker_id]
        self._context.shutting_down.discard(broker_id)
        self._context.offline.pop(broker_id, None)
        self._parts.channels.close([broker_id])

    async def _bring_up(self, brokers: Collection[BrokerInfo]) -> None:
        if not brokers:
            return
        context, parts = self._context, self._parts
        for broker in brokers:
            self._open(broker)
        came = [broker.broker_id for broker in brokers]
        parts.outbox.update_metadata()
        parts.outbox.everything(came)
        parts.outbox.flush()
        await self._move(_on(context.replicas(context.partitions_kept()), came), ReplicaState.ONLINE)
        await parts.partitions.elect_where_nobody_leads()

    async def _remember(self) -> None:
        """So that the next controller knows that these lives have been taken into account."""
        brokers = dict(self._context.brokers)
        epochs = {broker_id: broker.epoch for broker_id, broker in brokers.items()}
        if epochs != self._remembered:
            await self._parts.store.multi(await self._parts.store.read(write_epochs, brokers))
            self._remembered = epochs

    async def _move(self, replicas: Iterable[Replica], target: ReplicaState) -> None:
        """Those that can be moved; the others are being deleted."""
        state = self._context.replica_state
        await self._parts.replicas.move([each for each in replicas if (state(each), target) in REPLICA_MOVES], target)


def _on(replicas: Iterable[Replica], brokers: Collection[int]) -> list[Replica]:
    return [replica for replica in replicas if replica.broker_id in brokers]


def _assigned(replicas: Iterable[Replica]) -> list[int]:
    return sorted({replica.broker_id for replica in replicas})
