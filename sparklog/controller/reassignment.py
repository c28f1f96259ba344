"""Reassignment of partitions in the steps of KIP-455, so that a new controller can continue at any step.

RS: the replicas; ORS: the original ones; TRS: the target; AR = TRS - ORS (adding); RR = ORS - TRS (removing).

    U   requested           replicas of a former move's AR that are not in the new target leave the ISR, are stopped,
                            and delete their logs. Then /brokers/topics/T gets RS = TRS + ORS with AR and RR; until
                            then, the former move can be continued, and no broker knows the new AR: one in the ISR
                            would be lost to the next controller
    A   TRS not in sync     the leader epoch rises, LeaderAndIsr to RS, so that AR follow; AR are New
    B   TRS in sync         AR are Online; RS = TRS for all brokers, with a leader in TRS, so that no replica of RR
                            joins the ISR again. RR leave the ISR, are stopped, and delete their logs. Then
                            /brokers/topics/T gets RS = TRS, and the partition leaves /admin/reassign_partitions

    RS                AR         RR         leader   ISR
    1,2,3                                   1        1,2,3
    4,5,6,1,2,3       4,5,6      1,2,3      1        1,2,3            U, A
    4,5,6,1,2,3       4,5,6      1,2,3      1        1,2,3,4,5,6      followers have caught up
    4,5,6,1,2,3       4,5,6      1,2,3      4        4,5,6            B, before its last write
    4,5,6                                   4        4,5,6            done

B begins when a broker of TRS in the ISR has answered a request since TRS is in sync: brokers that have just lost power
are still registered, and RR may have the only intact logs then.

The store has ORS until the end, so all steps of B can be repeated. A cancellation is a move with TRS = ORS; the order
of the replicas may change if ORS and the former TRS overlap.

The controller refuses a move that would lose records, because it drops all replicas in sync. Kafka's ZooKeeper
controller carries it out; KRaft refuses it. /admin/reassign_partitions is read in the format that Kafka's tools wrote
until 2.x:
{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum

from msgspec import structs

from sparklog.base.errors import (
    BadVersion,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KafkaError,
    NoNode,
    NoReassignmentInProgress,
    StoreError,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.cluster.history import HistoryKind
from sparklog.cluster.model import ReplicaAssignment
from sparklog.cluster.store import Delete, Node, Set, Store, encode_json, find_node
from sparklog.cluster.topics import TOPICS, decode_assignment, encode_assignment
from sparklog.controller.cluster_reading import REASSIGN_PARTITIONS
from sparklog.controller.context import ControllerContext, PartitionAndReplica
from sparklog.controller.dependencies import TOGETHER, ControllerDependencies
from sparklog.controller.election import Election
from sparklog.controller.operation import ControllerOperation
from sparklog.controller.partition_state_machine import MAX_ROUNDS, read_again
from sparklog.controller.states import PartitionState, ReplicaState
from sparklog.runtime.slices import of_many

Targets = Mapping[TopicPartition, tuple[int, ...] | None]
logger = logging.getLogger(__name__)


class ReassignmentPhase(Enum):
    """Phase of a partition's reassignment."""

    CATCHING_UP = "A"
    COMPLETE = "B"


def phase_of(context: ControllerContext, name: TopicPartition, assignment: ReplicaAssignment) -> ReassignmentPhase:
    """Return COMPLETE if the whole target is in sync and one of its replicas is online to lead."""
    if not assignment.is_reassigning:
        return ReassignmentPhase.COMPLETE
    known = context.leadership.get(name)
    if known is None or not set(assignment.target) <= set(known.isr):
        return ReassignmentPhase.CATCHING_UP
    online = any(context.is_online(broker, name) for broker in assignment.target)
    return ReassignmentPhase.COMPLETE if online else ReassignmentPhase.CATCHING_UP


def plan(
    context: ControllerContext, name: TopicPartition, target: tuple[int, ...] | None, *, may_resize: bool = True
) -> ReplicaAssignment:
    """Return the assignment with which a move begins. target: None cancels the present move

    Raises UnknownTopicOrPartition, NoReassignmentInProgress, InvalidReplicaAssignment or InvalidReplicationFactor.
    """
    current = context.assignment(name)
    if not current.replicas or name.topic in context.deleting:
        raise UnknownTopicOrPartition(f"there is no partition {name}")
    if target is None:
        if not current.is_reassigning:
            raise NoReassignmentInProgress(f"{name} is not being reassigned")
        target = current.origin
    else:
        _check_target(context, current, target, may_resize=may_resize)
    moved = current.reassign_to(target)
    isr = set(context.leadership[name].isr) if name in context.leadership else set()
    if isr and not isr & set(moved.replicas):
        raise InvalidReplicaAssignment(
            f"only {_joined(sorted(isr))} are in sync, and would be given up: records would be lost. "
            "Wait until others are, or keep one of these"
        )
    return moved


def _check_target(
    context: ControllerContext,
    current: ReplicaAssignment,
    target: tuple[int, ...],
    *,
    may_resize: bool,
) -> None:
    if not target:
        raise InvalidReplicaAssignment("a partition needs a replica")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(f"{_joined(target)} names a broker twice")
    if missing := set(current.reassign_to(target).adding) - set(context.live_brokers):
        raise InvalidReplicaAssignment(
            f"brokers {_joined(sorted(missing))} are not alive; these are: {_joined(context.live_brokers)}"
        )
    if not may_resize and len(target) != len(current.target):
        raise InvalidReplicationFactor(f"The replication factor is changed from {len(current.target)} to {len(target)}")


class Reassignments(ControllerOperation):
    """The reassignments of one controller, from its election to its end."""

    def __init__(self, dependencies: ControllerDependencies, *, is_marked: Callable[[str], bool]) -> None:
        """is_marked: returns whether a topic has a deletion request; then no new move of it begins."""
        self._context = dependencies.context
        self._store = dependencies.store
        self._outbox = dependencies.outbox
        self._note = dependencies.note
        self._partitions = dependencies.partitions
        self._replicas = dependencies.replicas
        self._slices = dependencies.slices
        self._is_marked = is_marked
        self._asked: dict[TopicPartition, int] = {}
        """Moves in B that wait for an answer, with the number before that of the first request that counts."""

    async def reassign(self, targets: Targets, *, may_resize: bool = True) -> dict[TopicPartition, KafkaError | None]:
        """Begin moves of partitions, or cancel them (target None). Return an error, or None, for each partition."""
        await read_again(self._context, self._store, [name for name in targets if name in self._context.leadership])
        answers: dict[TopicPartition, KafkaError | None] = {}
        planned = {}

        async def plan_some(some: Iterable[TopicPartition]) -> None:
            for name in some:
                target = targets[name]
                try:
                    if target is not None and self._is_marked(name.topic):
                        raise UnknownTopicOrPartition(f"topic {name.topic!r} is to be deleted")
                    planned[name] = plan(self._context, name, target, may_resize=may_resize)
                    answers[name] = None
                except KafkaError as error:
                    answers[name] = error

        await self._slices.each(of_many(list(targets), TOGETHER), plan_some)
        await self._remove_from_request(lambda name, _: name in planned)
        with self._together(planned):
            for name, assignment in planned.items():
                await self._begin(name, assignment)
        return answers

    async def store_requests_changed(self) -> None:
        """Begin the moves in /admin/reassign_partitions, if it exists; remove refused moves from the node."""
        node = await self._store.read(find_node, REASSIGN_PARTITIONS)
        if node is None:
            return
        refused = set()
        for name, target in decode_request(node.data).items():
            try:
                current = self._context.assignment(name)
                if not (current.is_reassigning and current.target == target):
                    if self._is_marked(name.topic):
                        raise UnknownTopicOrPartition(f"topic {name.topic!r} is to be deleted")
                    current = plan(self._context, name, target)
                await self._begin(name, current)
            except KafkaError as error:
                logger.warning("%s in %s: %s", name, REASSIGN_PARTITIONS, error)
                refused.add(name)
        await self._remove_from_request(lambda name, _: name in refused)

    async def resume(self) -> None:
        for name in sorted(self._context.reassigning):
            await self._advance(name)

    async def brokers_came(self, brokers: Collection[int]) -> None:
        """Continue the moves of partitions that have replicas on these brokers."""
        for name in sorted(self._context.reassigning):
            if not set(brokers).isdisjoint(self._context.assignment(name).replicas):
                await self._advance(name)

    async def isr_changed(self, names: Collection[TopicPartition]) -> None:
        """Complete the moves that waited for these ISRs."""
        moving = sorted(self._context.reassigning & set(names))
        ready = [each for each in moving if self._is_ready(each)]
        for name in set(moving).difference(ready):
            self._asked.pop(name, None)
        await self._advance_all(ready)

    async def broker_answered(self, broker_id: int) -> None:
        """Complete the moves that waited for this broker."""
        moving = self._context.reassigning
        answered = sorted(
            name
            for name, number in self._asked.items()
            if name not in moving or broker_id in self._context.have_answered(number)
        )
        for name in answered:
            if name not in moving or not self._is_ready(name):
                del self._asked[name]
        await self._advance_all([name for name in answered if name in self._asked])

    def _is_ready(self, name: TopicPartition) -> bool:
        return phase_of(self._context, name, self._context.assignment(name)) is ReassignmentPhase.COMPLETE

    async def _advance_all(self, names: Collection[TopicPartition]) -> None:
        with self._together(names):
            for name in names:
                await self._advance(name)

    def _together(self, names: Collection[TopicPartition]) -> AbstractContextManager[None]:
        """Hold back the requests of several partitions, so that each broker gets them in one batch."""
        return self._outbox.held() if len(names) > 1 else nullcontext()

    async def _begin(self, name: TopicPartition, assignment: ReplicaAssignment) -> None:
        current = self._context.assignment(name)
        self._context.reassigning.add(name)
        self._asked.pop(name, None)
        if assignment != current:
            logger.info("%s: from %s to %s", name, assignment.origin, assignment.target)
            is_cancelled = current.is_reassigning and assignment.target == current.origin
            kind = HistoryKind.REASSIGNMENT_CANCELLED if is_cancelled else HistoryKind.REASSIGNMENT_BEGUN
            self._note(kind, name, origin=current.origin, target=assignment.target)
            if dropped := [broker for broker in current.replicas if broker not in assignment.replicas]:
                self._context.set_assignment(name, current.without(dropped))
                await self._drop_added(name, dropped)
            await self._write(name, assignment)
            self._context.set_assignment(name, assignment)
        await self._advance(name)

    async def _drop_added(self, name: TopicPartition, brokers: Collection[int]) -> None:
        """Remove replicas that a former move was adding, so that none of them leads or joins the ISR again."""
        known = self._context.leadership.get(name)
        if known and known.leader in brokers:
            await self._partitions.move([name], PartitionState.ONLINE)
        else:
            await self._bump_leader_epoch(name)
        await self._remove(name, brokers)

    async def _advance(self, name: TopicPartition) -> None:
        if name not in self._context.leadership:
            await self._partitions.move([name], PartitionState.ONLINE)
        assignment = self._context.assignment(name)
        if self._is_ready(name):
            if self._may_remove(name, assignment):
                await self._complete(name, assignment)
            return
        self._asked.pop(name, None)
        await self._bump_leader_epoch(name)
        await self._begin_to_follow([PartitionAndReplica(name, broker) for broker in assignment.adding])

    async def _begin_to_follow(self, added: Iterable[PartitionAndReplica]) -> None:
        unborn = [each for each in added if self._context.replica_state(each) is ReplicaState.NON_EXISTENT]
        await self._replicas.move(unborn, ReplicaState.NEW)

    def _may_remove(self, name: TopicPartition, assignment: ReplicaAssignment) -> bool:
        """Return whether a target replica in the ISR is known to be alive, if others leave the ISR. If not, ask."""
        isr = set(self._context.leadership[name].isr)
        if isr.isdisjoint(assignment.removing):
            return True
        if name not in self._asked:
            self._asked[name] = self._outbox.ask_whether_alive()
            self._outbox.flush()
        staying = isr.intersection(assignment.target)
        return not staying.isdisjoint(self._context.have_answered(self._asked[name]))

    async def _complete(self, name: TopicPartition, assignment: ReplicaAssignment) -> None:
        added = [
            PartitionAndReplica(name, broker) for broker in assignment.adding if self._context.is_online(broker, name)
        ]
        await self._begin_to_follow(added)
        await self._replicas.move(added, ReplicaState.ONLINE)
        done = ReplicaAssignment(replicas=assignment.target)
        self._context.set_assignment(name, done)
        if not await self._move_leader(name, done) and assignment.removing:
            self._context.set_assignment(name, assignment)
            return
        await self._remove(name, assignment.removing)
        await self._write(name, done)
        self._context.reassigning.discard(name)
        self._asked.pop(name, None)
        await self._remove_from_request(lambda each, target: each == name and target == done.replicas)
        self._outbox.update_metadata([name.topic])
        self._outbox.flush()
        logger.info("%s: its replicas are %s now", name, done.replicas)
        self._note(HistoryKind.REASSIGNMENT_COMPLETED, name, replicas=done.replicas)

    async def _move_leader(self, name: TopicPartition, done: ReplicaAssignment) -> bool:
        """Ensure that a target replica leads, with the target as its replicas; return whether that succeeded."""
        known = self._context.leadership.get(name)
        if known and known.leader in done.replicas and self._context.is_online(known.leader, name):
            await self._bump_leader_epoch(name)
            return True
        return not await self._partitions.move([name], PartitionState.ONLINE, Election.REASSIGNMENT)

    async def _bump_leader_epoch(self, name: TopicPartition) -> None:
        """Raise the leader epoch, as replicas apply a changed assignment only with a new leader epoch."""
        for _ in range(MAX_ROUNDS):
            known = self._context.leadership.get(name)
            if known is None:
                return
            bumped = structs.replace(known, leader_epoch=known.leader_epoch + 1, controller_epoch=self._context.epoch)
            written = await self._store.write_states({name: bumped})
            if name in written:
                self._context.leadership[name] = written[name]
                self._outbox.leader_and_isr(self._context.recipients(name), name)
                self._outbox.flush()
                return
            await read_again(self._context, self._store, [name])
        raise StoreError(f"the state of {name} changes whenever it is written")

    async def _remove(self, name: TopicPartition, brokers: Iterable[int]) -> None:
        """Stop these replicas and delete their logs, except a replica that is the only one in sync."""
        there = [
            replica
            for broker in brokers
            if self._context.replica_state(replica := PartitionAndReplica(name, broker))
            is not ReplicaState.NON_EXISTENT
        ]
        await self._replicas.move(there, ReplicaState.OFFLINE)
        known = self._context.leadership.get(name)
        kept = [replica for replica in there if known and replica.broker_id in known.isr]
        for replica in kept:
            logger.error("%s is not deleted: it alone is in sync. Have the partition moved back to it", replica)
            del self._context.replica_states[replica]
        gone = [replica for replica in there if replica not in kept]
        for state in (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT):
            await self._replicas.move(gone, state)

    async def _write(self, name: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Write the partition's assignment to the topic's node; keep other changes, such as new partitions."""
        path = f"{TOPICS}/{name.topic}"
        for _ in range(MAX_ROUNDS):
            node: Node = await self._store.read(_get, path)
            topic = decode_assignment(node.data, node.version)
            partitions = list(topic.partitions)
            partitions[name.partition] = structs.replace(
                partitions[name.partition],
                replicas=assignment.replicas,
                adding=assignment.adding,
                removing=assignment.removing,
            )
            if tuple(partitions) == topic.partitions:
                return
            try:
                data = encode_assignment(topic.topic_id, partitions, topic.initialized)
                await self._store.multi([Set(path, data, node.version)])
                return
            except BadVersion:
                continue
        raise StoreError(f"{path} changes whenever it is written")

    async def _remove_from_request(self, drop: Callable[[TopicPartition, tuple[int, ...]], bool]) -> None:
        """Remove the moves that `drop` selects from /admin/reassign_partitions; delete the node if none is left."""
        for _ in range(MAX_ROUNDS):
            node = await self._store.read(find_node, REASSIGN_PARTITIONS)
            if node is None:
                return
            asked = decode_request(node.data)
            left = {name: target for name, target in asked.items() if not drop(name, target)}
            if left and left == asked:
                return
            change: Delete | Set = Delete(REASSIGN_PARTITIONS, node.version)
            if left:
                change = Set(REASSIGN_PARTITIONS, encode_request(left), node.version)
            try:
                await self._store.multi([change])
                return
            except BadVersion:
                continue
            except NoNode:
                return
        raise StoreError(f"{REASSIGN_PARTITIONS} changes whenever it is written")


def encode_request(targets: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """Return the data of /admin/reassign_partitions."""
    partitions = [
        {"topic": name.topic, "partition": name.partition, "replicas": list(target)} for name, target in targets.items()
    ]
    return encode_json({"version": 1, "partitions": partitions})


def decode_request(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Parse the data of /admin/reassign_partitions; return nothing if it is invalid."""
    try:
        return {
            TopicPartition(str(part["topic"]), int(part["partition"])): tuple(int(each) for each in part["replicas"])
            for part in json.loads(data)["partitions"]
        }
    except (ValueError, KeyError, TypeError):
        logger.warning("%s makes no sense: %r", REASSIGN_PARTITIONS, data[:200])
        return {}


def _get(store: Store, path: str) -> Node:
    return store.get(path)


def _joined(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
