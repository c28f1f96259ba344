"""State transitions of replicas: decide, write, update the context, inform the brokers (as in partition_state_machine).

A replica that goes offline leaves the ISR, except the last one in it: only this replica has all acknowledged records,
and the partition waits for it. If all go offline at once, the leader stays in the ISR: it may have more records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from msgspec import structs

from sparklog.base.errors import StoreError
from sparklog.base.ids import TopicPartition
from sparklog.cluster.history import HistoryKind, HistoryRecorder, note_nothing
from sparklog.cluster.partition_states import Leadership
from sparklog.controller.context import ControllerContext, PartitionAndReplica
from sparklog.controller.fenced_store import FencedStore
from sparklog.controller.outbox import Outbox
from sparklog.controller.partition_state_machine import MAX_ROUNDS, details_of, read_again
from sparklog.controller.states import REPLICA_MOVES, IllegalMove, ReplicaState, check_moves
from sparklog.replica.messages import NO_LEADER

logger = logging.getLogger(__name__)


class ReplicaStateMachine:
    """The state machine of replicas of one controller, from its election to its end."""

    def __init__(
        self, context: ControllerContext, store: FencedStore, outbox: Outbox, *, note: HistoryRecorder = note_nothing
    ) -> None:
        self._context = context
        self._store = store
        self._outbox = outbox
        self._note = note

    async def move(self, replicas: Iterable[PartitionAndReplica], target: ReplicaState) -> None:
        """Move replicas to a state. Raises IllegalMove, with nothing changed, ControllerMoved or another StoreError."""
        moved = list(dict.fromkeys(replicas))
        check_moves(REPLICA_MOVES, {each: self._context.replica_state(each) for each in moved}, target)
        match target:
            case ReplicaState.NEW:
                self._begin_to_follow(moved)
            case ReplicaState.ONLINE:
                self._bring_online(moved)
            case ReplicaState.OFFLINE:
                await self._stop(moved)
            case ReplicaState.DELETION_STARTED:
                for replica in moved:
                    self._outbox.stop_replica(replica, delete=True)
            case ReplicaState.NON_EXISTENT:
                self._remove(moved)
        for replica in moved:
            self._put(replica, target)
        self._outbox.flush()

    def _begin_to_follow(self, replicas: Sequence[PartitionAndReplica]) -> None:
        led = [replica for replica in replicas if replica.name in self._context.leadership]
        for replica in led:
            if self._context.leadership[replica.name].leader == replica.broker_id:
                raise IllegalMove(f"{replica} cannot be new: it leads the partition")
        for replica in led:
            self._outbox.leader_and_isr([replica.broker_id], replica.name)

    def _bring_online(self, replicas: Sequence[PartitionAndReplica]) -> None:
        for replica in replicas:
            is_told = self._context.replica_state(replica) is ReplicaState.NEW
            if not is_told and replica.name in self._context.leadership:
                self._outbox.leader_and_isr([replica.broker_id], replica.name)

    async def _stop(self, replicas: Sequence[PartitionAndReplica]) -> None:
        leaving: dict[TopicPartition, list[int]] = {}
        for replica in replicas:
            self._outbox.stop_replica(replica, delete=False)
            if replica.name.topic in self._context.deleting:
                continue  # the partition never gets a leader again, so its ISR does not matter
            if replica.name in self._context.leadership:
                leaving.setdefault(replica.name, []).append(replica.broker_id)
            else:
                self._outbox.update_metadata([replica.name.topic])
        for _ in range(MAX_ROUNDS):
            decided = {name: new for name, gone in leaving.items() if (new := self._without(name, gone))}
            written = await self._store.write_states(decided)
            for name, state in written.items():
                self._context.leadership[name] = state
                self._inform_others(name, leaving[name])
                logger.info("%s: replicas %s are offline, in sync %s", name, leaving[name], state.isr)
                self._note(HistoryKind.REPLICAS_OFFLINE, name, offline=leaving[name], **details_of(state))
            leaving = {name: leaving[name] for name in decided if name not in written}
            if not leaving:
                return
            await read_again(self._context, self._store, leaving)
        raise StoreError(f"another writer changed the states of {list(leaving)} at every attempt")

    def _without(self, name: TopicPartition, gone: Sequence[int]) -> Leadership | None:
        """Return the partition's state without these replicas; None if that changes nothing."""
        known = self._context.leadership.get(name)
        if known is None or not ({known.leader, *known.isr} & set(gone)):
            return None
        isr = list(known.isr)
        for broker in sorted(gone, key=lambda each: each == known.leader):
            if broker in isr and len(isr) > 1:
                isr.remove(broker)
        leader = NO_LEADER if known.leader in gone else known.leader
        if (leader, tuple(isr)) == (known.leader, known.isr):
            return None
        return structs.replace(
            known,
            leader=leader,
            isr=tuple(isr),
            leader_epoch=known.leader_epoch + 1,
            controller_epoch=self._context.epoch,
        )

    def _inform_others(self, name: TopicPartition, gone: Sequence[int]) -> None:
        told = self._context.recipients(name)
        self._outbox.leader_and_isr([broker for broker in told if broker not in gone], name)

    def _remove(self, replicas: Sequence[PartitionAndReplica]) -> None:
        for name, broker in replicas:
            self._context.set_assignment(name, self._context.assignment(name).without((broker,)))

    def _put(self, replica: PartitionAndReplica, state: ReplicaState) -> None:
        if state is ReplicaState.NON_EXISTENT:
            self._context.replica_states.pop(replica, None)
        else:
            self._context.replica_states[replica] = state
