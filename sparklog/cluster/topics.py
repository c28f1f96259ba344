"""Topics in the cluster store, at the paths and in the JSON of Kafka in ZooKeeper (kafka.zk.ZkData).

    /brokers/topics/T                      {"version": 3, "topic_id": "…", "partitions": {"0": [1, 2], …},
                                            "adding_replicas": {…}, "removing_replicas": {…}, "initialized": 2}:
                                           replicas of each partition, and those that a reassignment adds and removes;
                                           the number of partitions that have had a state, a field that Kafka lacks
    /brokers/topics/T/partitions/P/state   {"version": 1, "controller_epoch": 0, "leader": 1, "leader_epoch": 0,
                                            "isr": [1, 2]}: written by the controller, and by the leader for its ISR
    /brokers/topics/T/unsure               the store had lost this topic, or changes of it: a replica that is not in the
                                           assignment may not have moved. Its data, if any, is the copy from which the
                                           topic was restored (restored_topics.py)
    /config/topics/T                       {"version": 1, "config": {"retention.ms": "1000"}}; every topic has one
    /config/brokers/N, …/<default>         the same for one broker, and for all
    /config/changes/config_change_*        {"version": 2, "entity_path": "topics/T"}: this configuration has changed
    /admin/delete_topics/T                 the topic is to be deleted

Any broker adds topics, partitions and configurations; a new partition has no state until the controller, which
watches these paths, has elected its leader.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from msgspec import Struct, structs

from sparklog.base.errors import BadVersion, NodeExists, NoNode, StoreError
from sparklog.base.ids import TopicPartition, decode_id, encode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.brokers import BROKER_IDS
from sparklog.cluster.config_nodes import (
    ATTEMPTS,
    CONFIG_CHANGES,
    DEFAULT,
    change_config,
    decode_config,
    encode_config,
    notice_of,
    put_config,
    read_config,
)
from sparklog.cluster.model import PartitionInfo, ReplicaAssignment, Topic
from sparklog.cluster.store import (
    Check,
    Create,
    Operation,
    Set,
    Store,
    Watch,
    encode_json,
    ensure_path,
    ensure_paths,
    find_node,
)
from sparklog.log.directory.topic_configs import UNLIMITED, config_of

TOPICS = "/brokers/topics"
CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
DELETIONS = "/admin/delete_topics"
ALL_BROKERS = -1
"""Id for the keys that are set for all brokers."""
NO_LEADER = -1
ChangeOverrides = Callable[[Mapping[str, str]], Mapping[str, str]]
NO_EPOCH = -1
logger = logging.getLogger(__name__)


class TopicAssignment(Struct, frozen=True, kw_only=True):
    """Content of `/brokers/topics/T`: the replicas of the partitions, in order."""

    topic_id: UUID
    partitions: tuple[ReplicaAssignment, ...]
    version: int
    """Version of the node, which a later write compares."""
    initialized: int = 0
    """Number of partitions, from 0 on, that have had a state: without one, such a partition has lost it, and is not
    new. Nodes of earlier versions have 0."""

    def lost_states(self, name: str, states: Container[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that have lost their state. name: the topic's. states: the partitions that have one"""
        initialized = (TopicPartition(name, number) for number in range(self.initialized))
        return [partition for partition in initialized if partition not in states]


class TopicStore:
    """Reads and writes the topics of a cluster. Calls block, as those of Store do."""

    def __init__(self, store: Store, defaults: TopicConfig) -> None:
        self._store = store
        self._defaults = defaults

    def make_paths(self) -> None:
        """Create the parent nodes that do not exist."""
        ensure_paths(self._store, (BROKER_IDS, TOPICS, CONFIGS, BROKER_CONFIGS, CONFIG_CHANGES, DELETIONS))

    # Topics

    def names(self) -> list[str]:
        """Return the names of all topics, sorted, including those with a deletion request."""
        return self._store.children(TOPICS)

    def exists(self, name: str) -> bool:
        """Return whether there is a topic of the name."""
        return self._store.exists(f"{TOPICS}/{name}")

    def load_assignment(self, name: str) -> TopicAssignment:
        """Return the topic's replicas. Raises NoNode if there is no such topic."""
        node = self._store.get(f"{TOPICS}/{name}")
        return decode_assignment(node.data, node.version)

    def load_overrides(self, name: str) -> dict[str, str]:
        """Return the topic's own configuration; if it was lost, one that keeps all records."""
        try:
            return decode_config(f"{CONFIGS}/{name}", self._store.get(f"{CONFIGS}/{name}").data)
        except NoNode:  # lost: a topic without keys of its own has an empty node
            return dict(UNLIMITED)

    def unconfigured(self) -> list[str]:
        """Return the topics whose own configuration was lost."""
        return sorted({*self.names()} - {*self._store.children(CONFIGS)})

    def restore_overrides(self, name: str, overrides: Mapping[str, str]) -> None:
        """Write the configuration of a topic whose own configuration was lost."""
        with suppress(NodeExists):  # another broker has written it
            self._store.multi((Create(f"{CONFIGS}/{name}", encode_config(overrides)), notice_of(f"topics/{name}")))

    def load_config(self, name: str) -> TopicConfig:
        """Return the topic's effective configuration."""
        return config_of(name, self.load_overrides(name), self._defaults)

    def load(self, name: str) -> Topic:
        """Return the whole topic. Raises NoNode if there is no such topic."""
        assignment = self.load_assignment(name)
        overrides = self.load_overrides(name)
        return Topic(
            name=name,
            topic_id=assignment.topic_id,
            partitions=tuple(self._with_state(name, *each) for each in enumerate(assignment.partitions)),
            overrides=overrides,
            config=config_of(name, overrides, self._defaults),
        )

    def _with_state(self, name: str, number: int, assignment: ReplicaAssignment) -> PartitionInfo:
        unled = without_leader(assignment)
        try:
            node = self._store.get(state_path(name, number))
        except NoNode:
            return unled
        state = _decode(node.data)
        return structs.replace(
            unled,
            leader=state["leader"],
            leader_epoch=state["leader_epoch"],
            in_sync_replicas=tuple(state["isr"]),
            partition_epoch=node.version,
        )

    def add(self, name: str, topic_id: UUID, replicas: Sequence[Sequence[int]], overrides: Mapping[str, str]) -> None:
        """Add a topic with the replicas of each partition, which have no leader yet. Raises NodeExists."""
        partitions = [ReplicaAssignment(replicas=tuple(each)) for each in replicas]
        config = f"{CONFIGS}/{name}"
        write = Set if self._store.exists(config) else Create  # a former topic of this name may have left its node
        self._store.multi(
            (
                write(config, encode_config(overrides)),
                Create(f"{TOPICS}/{name}", encode_assignment(topic_id, partitions)),
            )
        )

    def set_assignment(self, name: str, assignment: TopicAssignment) -> int:
        """Write the assignment if the node is still at `assignment.version`; return the new version.

        Raises NoNode or BadVersion.
        """
        data = encode_assignment(assignment.topic_id, assignment.partitions, assignment.initialized)
        return self._store.set(f"{TOPICS}/{name}", data, assignment.version)

    def create(
        self,
        name: str,
        topic_id: UUID,
        partitions: Sequence[PartitionInfo],
        overrides: Mapping[str, str],
        *,
        unsure: bytes = b"",
    ) -> None:
        """Add a topic that is older than the store, with the states of its partitions. Raises NodeExists.

        The topic's assignment is unsure. unsure: the data of the mark
        """
        config = f"{CONFIGS}/{name}"
        write = Set if self._store.exists(config) else Create
        self._store.multi(
            (
                Create(f"{TOPICS}/{name}", encode_assignment(topic_id, partitions, len(partitions))),
                Create(unsure_path(name), unsure),
                Create(f"{TOPICS}/{name}/partitions"),
                *_states(name, partitions),
                write(config, encode_config(overrides)),
            )
        )

    def set_unsure(self, name: str) -> None:
        """Mark a topic as unsure: the store has lost changes, and its assignment may be outdated."""
        ensure_path(self._store, unsure_path(name))

    def set_lost(self, names: Iterable[str]) -> None:
        """Mark topics that have lost states as unsure: brokers restore the states when they start."""
        for name in names:
            with suppress(NodeExists, NoNode):  # marked already, or the topic is deleted
                self._store.create(unsure_path(name))

    def is_unsure(self, name: str) -> bool:
        """Return whether the topic's assignment may be outdated (see /unsure above)."""
        return self._store.exists(unsure_path(name))

    def mark_deleted(self, name: str, topic_id: UUID) -> None:
        """Request the deletion of the topic with this id; do nothing if it is gone: a newer one may have its name.

        Raises StoreError if the topic changes ATTEMPTS times meanwhile.
        """
        ensure_path(self._store, DELETIONS)
        for _ in range(ATTEMPTS):
            with suppress(BadVersion):
                with suppress(NodeExists, NoNode):  # requested already, or the topic is gone
                    found = self.load_assignment(name)
                    if found.topic_id == topic_id:
                        self._store.multi((Check(f"{TOPICS}/{name}", found.version), Create(f"{DELETIONS}/{name}")))
                return
        raise StoreError(f"{TOPICS}/{name} was changed by others {ATTEMPTS} times")

    def is_marked_deleted(self, name: str, watch: Watch | None = None) -> bool:
        """Return whether the topic has a deletion request. watch: called when that changes"""
        return self._store.exists(f"{DELETIONS}/{name}", watch)

    def marked_deleted(self) -> list[str]:
        """Return the names of the topics with a deletion request, sorted; some may not exist."""
        return self._store.children(DELETIONS)

    # Configurations

    def change_overrides(self, name: str, change: ChangeOverrides) -> dict[str, str]:
        """Apply `change` to a topic's own configuration, notify the controller, and return the result.

        Raises NoNode, or StoreError if other writers change it ATTEMPTS times meanwhile.
        """
        return change_config(self._store, f"{CONFIGS}/{name}", change, notice_of(f"topics/{name}"))

    def load_broker_overrides(self) -> dict[int, dict[str, str]]:
        """Return the keys that were changed at run time, by broker id; under ALL_BROKERS those for all brokers."""
        return {
            ALL_BROKERS if entity == DEFAULT else int(entity): overrides
            for entity in self._store.children(BROKER_CONFIGS)
            if (overrides := read_config(self._store, f"{BROKER_CONFIGS}/{entity}"))
        }

    def restore_broker_overrides(self, node: str, overrides: Mapping[str, str], *, replaces: bool) -> None:
        """Write the lost keys of one broker's node, or of the node for all brokers.

        replaces: replace keys that the store has
        """
        known = find_node(self._store, f"{BROKER_CONFIGS}/{node}")
        if replaces or known is None or not known.data:  # a broker died before it wrote the data
            put_config(self._store, f"brokers/{node}", lambda _: overrides)

    def change_broker_overrides(self, broker_id: int, change: ChangeOverrides) -> dict[str, str]:
        """Change the keys of a broker, or of ALL_BROKERS, as `change_overrides` does, and return the result.

        The node need not exist yet.
        """
        entity = DEFAULT if broker_id == ALL_BROKERS else str(broker_id)
        return put_config(self._store, f"brokers/{entity}", change)


def broker_nodes(for_all: Mapping[str, str], own: Mapping[str, str], broker_id: int) -> dict[str, Mapping[str, str]]:
    """Return the keys that were set at run time, for all brokers and for one of them, by the names of their nodes."""
    return {DEFAULT: for_all, str(broker_id): own}


def state_path(name: str, number: int) -> str:
    """Return the path of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{number}/state"


def unsure_path(name: str) -> str:
    """Return the path of the mark that a topic's assignment is unsure."""
    return f"{TOPICS}/{name}/unsure"


def without_leader(assignment: ReplicaAssignment) -> PartitionInfo:
    """Return a partition that has no state yet."""
    return PartitionInfo(
        leader=NO_LEADER,
        leader_epoch=NO_EPOCH,
        replicas=assignment.replicas,
        in_sync_replicas=(),
        adding=assignment.adding,
        removing=assignment.removing,
        partition_epoch=NO_EPOCH,
    )


def encode_assignment(
    topic_id: UUID, partitions: Iterable[ReplicaAssignment | PartitionInfo], initialized: int = 0
) -> bytes:
    """Return the data of `/brokers/topics/T`. initialized: as in TopicAssignment"""
    numbered = [(str(number), info) for number, info in enumerate(partitions)]
    return encode_json(
        {
            "version": 3,
            "topic_id": encode_id(topic_id),
            "partitions": {number: list(info.replicas) for number, info in numbered},
            "adding_replicas": {number: list(info.adding) for number, info in numbered if info.adding},
            "removing_replicas": {number: list(info.removing) for number, info in numbered if info.removing},
            **({"initialized": initialized} if initialized else {}),
        }
    )


def decode_assignment(data: bytes, version: int) -> TopicAssignment:
    """Return the assignment in the data of `/brokers/topics/T`; older brokers wrote no reassignments."""
    topic = _decode(data)
    replicas, adding, removing = (topic.get(key, {}) for key in ("partitions", "adding_replicas", "removing_replicas"))
    numbers = [str(number) for number in range(len(replicas))]
    return TopicAssignment(
        topic_id=decode_id(topic["topic_id"]),
        partitions=tuple(
            ReplicaAssignment(
                replicas=tuple(replicas[each]),
                adding=tuple(adding.get(each, ())),
                removing=tuple(removing.get(each, ())),
            )
            for each in numbers
        ),
        version=version,
        initialized=min(topic.get("initialized", 0), len(numbers)),
    )


def decode_config_change(data: bytes) -> str:
    """Return the entity in a notice: `topics/T` or `brokers/N`; empty if there is none."""
    return str(_decode(data).get("entity_path", ""))


def _states(name: str, partitions: Sequence[PartitionInfo]) -> Iterable[Operation]:
    for number, info in enumerate(partitions):
        yield Create(f"{TOPICS}/{name}/partitions/{number}")
        yield Create(state_path(name, number), _state(info))


def _state(info: PartitionInfo) -> bytes:
    return encode_json(
        {
            "version": 1,
            "controller_epoch": 0,
            "leader": info.leader,
            "leader_epoch": info.leader_epoch,
            "isr": list(info.in_sync_replicas),
        }
    )


def _decode(data: bytes) -> dict[str, Any]:
    return json.loads(data)  # type: ignore[no-any-return]
