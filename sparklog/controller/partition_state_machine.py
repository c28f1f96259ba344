"""State transitions of partitions: decide, write, update the context, inform the brokers.

A decision is based on the context, and is written with the versions in the context. If a leader has changed its ISR
meanwhile, the write fails; then the state is read and decided again. Only written states enter the context and reach
the brokers. One call of `move` makes one batch of requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from sparklog.base.errors import KafkaError, StoreError
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.history import HistoryKind, HistoryRecorder, note_nothing
from sparklog.cluster.model import ReplicaAssignment
from sparklog.cluster.partition_states import Leadership
from sparklog.controller.cluster_reading import read_assignments
from sparklog.controller.context import ControllerContext
from sparklog.controller.election import Election, elect
from sparklog.controller.fenced_store import FencedStore
from sparklog.controller.outbox import Outbox
from sparklog.controller.states import PARTITION_MOVES, PartitionState, ReplicaState, check_moves
from sparklog.log.directory.topic_configs import config_of
from sparklog.replica.messages import NO_LEADER

MAX_ROUNDS = 100
"""Maximum number of attempts to write a state that its leader changes too; more indicate a bug."""
AT_ONCE = 20
"""Partitions that are decided on in one turn of the event loop: about a millisecond of work."""
logger = logging.getLogger(__name__)


class PartitionStateMachine:
    """The state machine of partitions of one controller, from its election to its end."""

    def __init__(
        self,
        context: ControllerContext,
        store: FencedStore,
        outbox: Outbox,
        *,
        defaults: Callable[[], TopicConfig],
        note: HistoryRecorder = note_nothing,
    ) -> None:
        self._context = context
        self._store = store
        self._outbox = outbox
        self._defaults = defaults
        self._note = note

    def begin(self) -> None:
        """Set the states of all partitions that were read from the store."""
        for name in self._context.partitions():
            if name not in self._context.leadership:
                state = PartitionState.NEW
            else:
                state = PartitionState.ONLINE if self._context.has_leader(name) else PartitionState.OFFLINE
            self._context.partition_states[name] = state

    async def elect_missing_leaders(self) -> dict[TopicPartition, KafkaError]:
        """Elect leaders for all New or Offline partitions, except those of topics in deletion.

        Return the error of each partition without a leader.
        """
        waiting = self._context.partitions_in(PartitionState.NEW, PartitionState.OFFLINE)
        names = [name for name in waiting if name.topic not in self._context.deleting]
        return await self.move(names, PartitionState.ONLINE)

    async def move(
        self, names: Iterable[TopicPartition], target: PartitionState, election: Election = Election.OFFLINE
    ) -> dict[TopicPartition, KafkaError]:
        """Move partitions to a state; return the errors of those that got no leader, which keep their state.

        election: how a leader is chosen, if the target is ONLINE


        Raises IllegalMove, with nothing changed, ControllerMoved or another StoreError.
        """
        moved = list(names)
        check_moves(PARTITION_MOVES, {name: self._context.partition_state(name) for name in moved}, target)
        if target is PartitionState.ONLINE:
            errors = await self._elect(moved, election)
        else:
            errors = {}
            for name in moved:
                self._put(name, target)
        self._outbox.flush()
        return errors

    async def _elect(self, names: list[TopicPartition], election: Election) -> dict[TopicPartition, KafkaError]:
        errors: dict[TopicPartition, KafkaError] = {}
        for _ in range(MAX_ROUNDS):
            await self._read_restored([name for name in names if self._context.is_restored(name)])
            decided: dict[TopicPartition, Leadership] = {}
            unclean = {topic: self._is_unclean(topic) for topic in {name.topic for name in names}}
            async for name in in_turns(names):
                try:
                    decided[name] = elect(self._context, name, election, unclean=unclean[name.topic])
                except KafkaError as error:
                    errors[name] = error
                    logger.info("no leader (%s): %s", election.value, error)
            written = await self._store.write_states(decided)
            async for name in in_turns(written):
                self._elected(name, written[name], election)
            names = [name for name in decided if name not in written]
            if not names:
                return errors
            await read_again(self._context, self._store, names)
        raise StoreError(f"another writer changed the states of {names} at every attempt")

    async def _read_restored(self, names: Sequence[TopicPartition]) -> None:
        """Read the assignments of restored partitions: a new broker may have merged a newer copy before it registered.

        The merge writes the partition's state too, so an election that was decided before it fails, and is decided
        again.
        """
        topics = {name.topic for name in names}
        found = await self._store.read(read_assignments, topics) if topics else {}
        for name in names:
            partitions = found[name.topic].partitions if name.topic in found else ()
            if name.partition < len(partitions) and partitions[name.partition] != self._context.assignment(name):
                self._reassign(name, partitions[name.partition])

    def _reassign(self, name: TopicPartition, assignment: ReplicaAssignment) -> None:
        context = self._context
        logger.info("%s: the replicas are %s by a newer copy", name, assignment.replicas)
        for replica in context.replicas([name]):
            context.replica_states.pop(replica, None)
        context.set_assignment(name, assignment)
        context.reassigning.discard(name)
        self.adopt(name)

    def adopt(self, name: TopicPartition) -> None:
        """Set the states of a partition that has a state in the store already, and inform its replicas."""
        context = self._context
        if context.assignment(name).is_reassigning:
            context.reassigning.add(name)
        self._put(name, PartitionState.ONLINE if context.has_leader(name) else PartitionState.OFFLINE)
        for replica in context.replicas([name]):
            is_online = context.is_online(replica.broker_id, name, with_shutting_down=True)
            context.replica_states[replica] = ReplicaState.ONLINE if is_online else ReplicaState.OFFLINE
        self._outbox.leader_and_isr(context.recipients(name), name)

    def _elected(self, name: TopicPartition, state: Leadership, election: Election) -> None:
        before = self._context.leadership.get(name)
        is_new = before is None
        self._context.leadership[name] = state
        self._context.note_isrs([name])
        self._put(name, PartitionState.ONLINE)
        self._outbox.leader_and_isr(self._context.recipients(name), name, is_new=is_new)
        logger.info("%s: %s leads in epoch %s, in sync %s", name, state.leader, state.leader_epoch, state.isr)
        self._note(
            HistoryKind.LEADER_ELECTED,
            name,
            **details_of(state),
            reason="new" if is_new else election.value,
            previous_leader=before.leader if before else NO_LEADER,
            unclean=before is not None and bool(before.isr) and state.leader not in before.isr,
        )

    def _is_unclean(self, topic: str) -> bool:
        overrides = self._context.overrides.get(topic, {})
        return config_of(topic, overrides, self._defaults()).unclean_leader_election_enable

    def _put(self, name: TopicPartition, state: PartitionState) -> None:
        if state is PartitionState.NON_EXISTENT:
            self._context.partition_states.pop(name, None)
        else:
            self._context.partition_states[name] = state


async def in_turns(names: Iterable[TopicPartition]) -> AsyncIterator[TopicPartition]:
    """Yield the partitions, and let other tasks of the broker run after each AT_ONCE of them."""
    for count, name in enumerate(names, 1):
        yield name
        if count % AT_ONCE == 0:
            await asyncio.sleep(0)


def details_of(state: Leadership) -> dict[str, Any]:
    """Return the state as fields of a history record."""
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "partition_epoch": state.version,
        "controller_epoch": state.controller_epoch,
    }


async def read_again(context: ControllerContext, store: FencedStore, names: Iterable[TopicPartition]) -> None:
    """Update the leadership of `names` in the context from the store.

    Raises StoreError if a state is gone though its topic is not in deletion: a partition without a state would count
    as new, and get a second leader in a leader epoch.
    """
    asked = list(names)
    found = await store.read_states(asked)
    known = context.leadership.keys() - found.keys()
    if lost := [name for name in asked if name in known and name.topic not in context.deleting]:
        raise StoreError(f"the cluster store has lost the states of {', '.join(map(str, sorted(lost)))}")
    for name in asked:
        context.leadership.pop(name, None)
    context.leadership.update(found)
    context.note_isrs(asked)
