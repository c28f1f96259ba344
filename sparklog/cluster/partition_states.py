"""The states of partitions in the cluster store, which the controller and the leaders write.

    /brokers/topics/T/partitions/P/state   {"version": 1, "controller_epoch": 3, "leader": 1, "leader_epoch": 5,
                                            "isr": [1, 2]}

The controller creates the node with the partition's first leader and sets it at each election. It also records in the
topic's node that the partition has a state: a partition that has lost its state must not count as new, as its next
leader would count as the first. Each of the controller's transactions begins with a check of `/controller_epoch`, so
that a deposed controller changes nothing. The leader sets the node when it changes the ISR. Both writers compare the
node's version with the version that their decision is based on. The leader also checks the topic's id: a late change
must not hit a newer topic of the name.

    /isr_change_notification/isr_change_*  {"version": 1, "partitions": [{"topic": "t", "partition": 0}]}: a leader has
                                           changed these ISRs; the controller reads and removes it
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from uuid import UUID

from msgspec import Struct, structs

from sparklog.base.errors import BadVersion, ControllerMoved, InvalidUpdateVersion, NodeExists, NoNode, StoreError
from sparklog.base.ids import TopicPartition, encode_id
from sparklog.cluster.broker_epochs import read_broker_epochs
from sparklog.cluster.elections import CONTROLLER_EPOCH
from sparklog.cluster.store import Check, Create, Operation, Set, Store, encode_json, ensure_path
from sparklog.cluster.topics import TOPICS, TopicAssignment, decode_assignment, encode_assignment, state_path
from sparklog.replica.messages import AlterIsr, AlterIsrResult
from sparklog.runtime.slices import in_parts

ISR_CHANGES = "/isr_change_notification"
NOT_WRITTEN = -1
ATTEMPTS = 20
"""Maximum number of attempts to change ISRs; each fails if a joining broker or the topic's node changes meanwhile."""
STATES_AT_ONCE = 200
"""Maximum per transaction, to stay below ZooKeeper's limit of 1 MiB per request."""
NOTED_BYTES = 256 << 10
"""Maximum size of the topics' nodes in one transaction."""


class Leadership(Struct, frozen=True, kw_only=True):
    """Leader, leader epoch and ISR of a partition (Kafka: LeaderAndIsr)."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int = NOT_WRITTEN
    """Version of the node; NOT_WRITTEN if it does not exist yet."""


def encode_state(state: Leadership) -> bytes:
    """Return the data of a partition's state, without the node's version."""
    value = {
        "version": 1,
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    return encode_json(value)


def decode_state(data: bytes, version: int) -> Leadership:
    """Return the state in the data of a node. version: the node's"""
    value = json.loads(data)
    return Leadership(
        leader=value["leader"],
        leader_epoch=value["leader_epoch"],
        isr=tuple(value["isr"]),
        controller_epoch=value["controller_epoch"],
        version=version,
    )


def read_states(store: Store, names: Iterable[TopicPartition]) -> dict[TopicPartition, Leadership]:
    """Return the states of those `names` that have one."""
    found = {}
    for name in names:
        try:
            node = store.get(state_path(*name))
        except NoNode:
            continue
        found[name] = decode_state(node.data, node.version)
    return found


def fenced_multi(store: Store, epoch_version: int, operations: Iterable[Operation]) -> None:
    """Do `operations` if `/controller_epoch` is at `epoch_version`. Raises ControllerMoved if it is not."""
    try:
        store.multi((Check(CONTROLLER_EPOCH, epoch_version), *operations))
    except (BadVersion, NoNode):
        check_controller(store, epoch_version)
        raise


def check_controller(store: Store, epoch_version: int) -> None:
    """Raise ControllerMoved if another controller was elected since `/controller_epoch` was at `epoch_version`."""
    try:
        version = store.get(CONTROLLER_EPOCH).version
    except NoNode:
        version = NOT_WRITTEN
    if version != epoch_version:
        raise ControllerMoved(f"{CONTROLLER_EPOCH} is at version {version}, no longer at {epoch_version}")


def write_states(
    store: Store, states: Mapping[TopicPartition, Leadership], epoch_version: int
) -> dict[TopicPartition, Leadership]:
    """Write states for the controller; return the written ones, with their new versions.

    A node is created, or set if it still has the state's version. Other writers have changed or deleted the missing
    ones. Raises ControllerMoved.
    """
    names = list(states)
    written: dict[TopicPartition, Leadership] = {}
    for first in range(0, len(names), STATES_AT_ONCE):
        written |= _write_most(store, names[first : first + STATES_AT_ONCE], states, epoch_version)
    return {name: structs.replace(state, version=state.version + 1) for name, state in written.items()}


def _write_most(
    store: Store, names: Sequence[TopicPartition], states: Mapping[TopicPartition, Leadership], epoch_version: int
) -> dict[TopicPartition, Leadership]:
    """Write the states, except those that other writers have changed. Bisect on a failure: each write waits."""
    part = {name: states[name] for name in names}
    if _write(store, part, epoch_version):
        return part
    if len(names) == 1:
        return {}
    middle = len(names) // 2
    return {
        name: state
        for half in (names[:middle], names[middle:])
        for name, state in _write_most(store, half, states, epoch_version).items()
    }


def _write(store: Store, states: Mapping[TopicPartition, Leadership], epoch_version: int) -> bool:
    created = sorted(name for name, state in states.items() if state.version == NOT_WRITTEN)
    operations = [
        *_initialized(store, created),
        *_parents(store, created),
        *(
            Create(state_path(*name), encode_state(state))
            if state.version == NOT_WRITTEN
            else Set(state_path(*name), encode_state(state), state.version)
            for name, state in states.items()
        ),
    ]
    try:
        fenced_multi(store, epoch_version, operations)
    except (BadVersion, NodeExists, NoNode):
        return False
    return True


def note_initialized(
    store: Store, topics: Mapping[str, TopicAssignment], states: Container[TopicPartition], epoch_version: int
) -> None:
    """Record in topics' nodes which partitions have a state, where an earlier version has not. For the controller.

    topics: as they were read. states: the partitions that have one. A topic that has changed meanwhile is left to the
    next controller, with the topics of its transaction. Raises ControllerMoved.
    """
    writes = []
    for topic, known in topics.items():
        count = next(number for number in itertools.count(known.initialized) if (topic, number) not in states)
        if count > known.initialized:
            data = encode_assignment(known.topic_id, known.partitions, count)
            writes.append(Set(f"{TOPICS}/{topic}", data, known.version))
    for part in in_parts(writes, lambda write: len(write.data), NOTED_BYTES) if writes else ():
        with suppress(BadVersion, NoNode):
            fenced_multi(store, epoch_version, part)


def _initialized(store: Store, created: Sequence[TopicPartition]) -> Iterator[Operation]:
    """Yield the writes that record in topics' nodes that these partitions have a state (TopicAssignment)."""
    for topic, names in groupby(created, lambda name: name.topic):
        numbers = {name.partition for name in names}
        try:
            node = store.get(f"{TOPICS}/{topic}")
        except NoNode:
            continue  # the topic is being deleted, and its states are not written
        known = decode_assignment(node.data, node.version)
        count = known.initialized
        for _ in range(STATES_AT_ONCE):
            if count not in numbers and not store.exists(state_path(topic, count)):
                break
            count += 1
        if count > known.initialized:
            data = encode_assignment(known.topic_id, known.partitions, count)
            yield Set(f"{TOPICS}/{topic}", data, node.version)


def _parents(store: Store, created: Iterable[TopicPartition]) -> list[Operation]:
    """Return the operations that create the missing parents of new states; an earlier controller may have made some."""
    paths = dict.fromkeys(
        path for name in created for path in (f"{TOPICS}/{name.topic}/partitions", state_path(*name)[: -len("/state")])
    )
    return [Create(path) for path in paths if not store.exists(path)]


def alter_isr(store: Store, change: AlterIsr) -> AlterIsrResult:
    """Write an ISR for the leader, if the node still has the leader's version, and notify the controller.

    Return the ISR in the store. If the version differs but the leader and its epoch do not, the node's ISR is returned:
    the change itself (the store's answer was lost) or the ISR that a controller has set. Otherwise raises BadVersion.
    Raises, with nothing written, NoNode if the topic is gone, and InvalidUpdateVersion if a joining broker shuts down,
    or no longer has the broker epoch with which it caught up: it may have lost records since (`broker_epochs`).
    """
    write = _set_isr(change)
    for _ in range(ATTEMPTS):
        checks = _checks(store, (change,))
        try:
            store.multi((*checks, write))
        except BadVersion:
            node = store.get(write.path)
            found = decode_state(node.data, node.version)
            if found.version == change.partition_epoch:
                continue  # a broker came or went, or the topic's node has changed
            if (found.leader, found.leader_epoch) != (change.leader, change.leader_epoch):
                raise
            if found.isr != change.isr:
                return AlterIsrResult(isr=found.isr, partition_epoch=found.version)
            version = found.version
        else:
            version = change.partition_epoch + 1
        _notify(store, change.name)
        return AlterIsrResult(isr=change.isr, partition_epoch=version)
    raise InvalidUpdateVersion(f"{change.name}: brokers or the topic have changed {ATTEMPTS} times meanwhile")


def alter_isrs(store: Store, changes: Sequence[AlterIsr]) -> list[AlterIsrResult | Exception]:
    """Write several ISRs; return for each what `alter_isr` would return or raise.

    The changes share few transactions, each with one notice. If another writer has changed one of them, the changes of
    its transaction are written alone.
    """
    results: list[AlterIsrResult | Exception] = []
    for first in range(0, len(changes), STATES_AT_ONCE):
        results += _alter_together(store, changes[first : first + STATES_AT_ONCE])
    return results


def _alter_together(store: Store, changes: Sequence[AlterIsr]) -> Sequence[AlterIsrResult | Exception]:
    if len(changes) == 1:
        return [_alter_alone(store, changes[0])]
    checks: Sequence[Check] = ()
    for _ in range(ATTEMPTS):
        former = checks
        try:
            checks = _checks(store, changes)
            if checks == former:
                break  # a partition has changed
            store.multi((*checks, *map(_set_isr, changes)))
            _notify(store, *(change.name for change in changes))
        except BadVersion:
            continue
        except (NoNode, InvalidUpdateVersion):
            break
        except StoreError as error:
            return [error] * len(changes)
        return [AlterIsrResult(isr=change.isr, partition_epoch=change.partition_epoch + 1) for change in changes]
    return [_alter_alone(store, change) for change in changes]  # one of them fails


def _alter_alone(store: Store, change: AlterIsr) -> AlterIsrResult | Exception:
    try:
        return alter_isr(store, change)
    except (StoreError, InvalidUpdateVersion) as error:
        return error


def _set_isr(change: AlterIsr) -> Set:
    state = Leadership(
        leader=change.leader,
        leader_epoch=change.leader_epoch,
        isr=change.isr,
        controller_epoch=change.controller_epoch,
    )
    return Set(state_path(*change.name), encode_state(state), change.partition_epoch)


def _checks(store: Store, changes: Sequence[AlterIsr]) -> Sequence[Check]:
    """Return the checks to make with the writes: of the topics, and of broker epochs if brokers join ISRs.

    Raises NoNode if a topic is gone, and InvalidUpdateVersion if a joining broker has another epoch or shuts down.
    """
    checks = [
        _check_topic(store, *each) for each in dict.fromkeys((each.name.topic, each.topic_id) for each in changes)
    ]
    joining = {each for change in changes for each in change.joining.items()}
    if joining:
        published = read_broker_epochs(store)
        checks.append(published.unchanged)
        for broker_id, epoch in sorted(joining):
            found = published.epochs.get(broker_id)
            if found != epoch:
                raise InvalidUpdateVersion(f"broker {broker_id} had caught up with epoch {epoch}; it has {found} now")
            if broker_id in published.stopping:
                raise InvalidUpdateVersion(f"broker {broker_id} is shutting down")
    return checks


def _check_topic(store: Store, name: str, topic_id: UUID) -> Check:
    """Return the check that the topic's node stays as it is. Raises NoNode if another topic has the name now."""
    path = f"{TOPICS}/{name}"
    node = store.get(path)
    if f'"{encode_id(topic_id)}"'.encode() not in node.data:  # an assignment of many partitions takes long to decode
        raise NoNode(f"{path} is a newer topic of the name")
    return Check(path, node.version)


def _notify(store: Store, *names: TopicPartition) -> None:
    value = {"version": 1, "partitions": [{"topic": topic, "partition": partition} for topic, partition in names]}
    data = encode_json(value)
    try:
        store.create(f"{ISR_CHANGES}/isr_change_", data, sequential=True)
    except NoNode:
        ensure_path(store, ISR_CHANGES)
        store.create(f"{ISR_CHANGES}/isr_change_", data, sequential=True)


class IsrWriter:
    """Queue of a leader's ISR changes for the cluster store. Changes that come during a write are written together.

    When a broker comes or goes, each other broker changes the ISR of every partition that it leads. With a thread for
    each change, other work in threads would wait: for seconds, with some hundred partitions.

    Used on the event loop; takes one thread at a time.
    """

    def __init__(self, store: Store, is_lost: Callable[[], bool] = lambda: False) -> None:
        """is_lost: returns whether the store has lost everything. Then no ISR is written: a restored state may have the
        version of the lost one.
        """
        self._store = store
        self._is_lost = is_lost
        self._waiting: list[tuple[AlterIsr, asyncio.Future[AlterIsrResult]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, change: AlterIsr) -> AlterIsrResult:
        """Write a change; return and raise as `alter_isr` does. A cancelled call may still write the change."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[AlterIsrResult] = loop.create_future()
        self._waiting.append((change, done))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        return await done

    async def _run(self) -> None:
        while self._waiting:
            taken = [each for each in self._waiting if not each[1].done()]
            self._waiting = []
            results: Sequence[AlterIsrResult | Exception]
            try:
                if self._is_lost():
                    raise NoNode("the cluster store has lost everything: no ISR is written in it")
                results = await asyncio.to_thread(alter_isrs, self._store, [change for change, _ in taken])
            except Exception as error:  # noqa: BLE001 - the callers get it; later changes are still written
                results = [error] * len(taken)
            for (_, done), result in zip(taken, results, strict=True):
                _set_result(done, result)


def _set_result(done: asyncio.Future[AlterIsrResult], result: AlterIsrResult | Exception) -> None:
    if done.done():
        return
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)
