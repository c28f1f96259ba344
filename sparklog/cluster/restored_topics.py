"""Restoration of topics in a new cluster store, from the copies beside the brokers' logs.

    /brokers/topics/T/unsure     {"store_id": "…", "topic_id": "…", "configs": {…}, "partitions": {…}}: the copy from
                                 which the topic is restored (log/directory/topic_configs.py), and the id of the
                                 lost store

The first broker with a copy creates the topic: all its partitions, with the copy's replicas. Copies of other brokers
may be newer. Each broker merges its own copy when it starts, before it registers: the newest assignment of each
partition stays. So an election takes the copies of all registered brokers into account.

A restored partition has no leader and an empty ISR: any replica may lack acknowledged records. The controller compares
the replicas once all of them are registered (controller/election.py). Only a partition whose single replica is on this
broker gets its leader at once. A partition with a leader is not changed any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from uuid import UUID

from msgspec import structs

from sparklog.base.errors import BadVersion, NodeExists, NoNode, StoreError
from sparklog.base.ids import TopicPartition
from sparklog.cluster.config_nodes import ATTEMPTS, decode_config, encode_config, notice_of
from sparklog.cluster.model import PartitionInfo, ReplicaAssignment
from sparklog.cluster.partition_states import Leadership, encode_state, read_states
from sparklog.cluster.store import Create, Operation, Set, Store, encode_json, find_node
from sparklog.cluster.topics import (
    CONFIGS,
    NO_LEADER,
    TOPICS,
    TopicStore,
    decode_assignment,
    encode_assignment,
    state_path,
    unsure_path,
)
from sparklog.log.directory.topic_configs import AssignmentCopy, TopicCopy, decode_copy, encode_copy

_UNKNOWN = AssignmentCopy(replicas=())
"""Assignment of a partition that this copy lacks; another broker's copy may have it."""


class RestoreOutcome(Enum):
    """Result of applying a broker's copy."""

    CREATED = "created"
    MERGED = "merged"
    """A part of it was newer than other brokers' copies."""
    NOTHING = "nothing"
    """No part of it was newer than the store's."""
    OTHER_TOPIC = "other topic"
    """The store has another topic of this name."""


def restore_topic(
    store: Store, topics: TopicStore, name: str, copy: TopicCopy, *, store_id: str, broker_id: int,
    epochs: Mapping[int, int],
) -> RestoreOutcome:  # fmt: skip
    """Create the topic from a broker's copy, or merge the copy with those of other brokers. Blocks.

    store_id: of the lost store. epochs: unused leader epochs, by partition.

    Raises StoreError if the store cannot be reached, or if other brokers change the topic ATTEMPTS times meanwhile.
    """
    for _ in range(ATTEMPTS):
        with suppress(BadVersion, NodeExists, NoNode):
            if not topics.exists(name):
                topics.create(
                    name,
                    _id_of(copy),
                    _first_states(copy, epochs, broker_id),
                    copy.overrides,
                    unsure=_encode(copy, store_id),
                )
                return RestoreOutcome.CREATED
            return _merge(store, topics, name, copy, store_id, epochs)
    raise StoreError(f"topic {name} was changed by others {ATTEMPTS} times")


def _first_states(copy: TopicCopy, epochs: Mapping[int, int], broker_id: int) -> list[PartitionInfo]:
    found = []
    for number in range(max(copy.partitions) + 1):
        kept = copy.partitions.get(number, _UNKNOWN)
        is_alone = kept.replicas == (broker_id,)
        found.append(
            PartitionInfo(
                leader=broker_id if is_alone else NO_LEADER,
                leader_epoch=epochs.get(number, 0),
                replicas=kept.replicas,
                in_sync_replicas=(broker_id,) if is_alone else (),
                adding=kept.adding,
                removing=kept.removing,
            )
        )
    return found


def _merge(
    store: Store, topics: TopicStore, name: str, copy: TopicCopy, store_id: str, epochs: Mapping[int, int]
) -> RestoreOutcome:
    node = store.get(f"{TOPICS}/{name}")
    assignment = decode_assignment(node.data, node.version)
    if assignment.topic_id != copy.topic_id:
        return RestoreOutcome.OTHER_TOPIC
    if not topics.is_unsure(name) or not (unsure := store.get(unsure_path(name))).data:
        return RestoreOutcome.NOTHING  # the topic was not restored from a copy
    before = decode_copy(json.loads(unsure.data))
    partitions, merged = list(assignment.partitions), dict(before.partitions)
    while len(partitions) <= max(copy.partitions):
        partitions.append(ReplicaAssignment(replicas=()))
    states = read_states(store, [TopicPartition(name, number) for number in range(len(partitions))])
    writes: list[Operation] = []
    for number in range(len(partitions)):
        state, epoch = states.get(TopicPartition(name, number)), epochs.get(number, 0)
        if state is None:
            writes += _new(name, number, epoch)
        elif state.isr:
            continue
        kept = copy.partitions.get(number)
        if kept is not None and kept.is_newer_than(merged.get(number)):
            merged[number] = kept
            partitions[number] = ReplicaAssignment(replicas=kept.replicas, adding=kept.adding, removing=kept.removing)
            epoch = max(epoch, state.leader_epoch + 1 if state else 0)  # makes an election in progress fail and retry
        if state is not None and epoch > state.leader_epoch:
            raised = structs.replace(state, leader_epoch=epoch)
            writes.append(Set(state_path(name, number), encode_state(raised), state.version))
    known = structs.replace(before, partitions=merged)
    if json.loads(unsure.data).get("store_id") == store_id and (newer := _newer_config(store, name, copy, before)):
        writes += newer
        known = structs.replace(known, overrides=copy.overrides, seen_change=copy.seen_change)
    if not writes:
        return RestoreOutcome.NOTHING
    store.multi(
        (
            Set(f"{TOPICS}/{name}", encode_assignment(assignment.topic_id, partitions, len(partitions)), node.version),
            Set(unsure_path(name), _encode(known, json.loads(unsure.data).get("store_id", "")), unsure.version),
            *writes,
        )
    )
    return RestoreOutcome.MERGED


def restore_lost_states(store: Store, name: str, epochs: Mapping[int, int]) -> None:
    """Restore states of partitions, with these leader epochs; states from other brokers stay. Blocks.

    Raises NoNode if the topic is gone.
    """
    for number, epoch in epochs.items():
        partition = f"{TOPICS}/{name}/partitions/{number}"
        state = encode_state(_without_leader(epoch))
        for path, data in ((f"{TOPICS}/{name}/partitions", b""), (partition, b""), (state_path(name, number), state)):
            with suppress(NodeExists):
                store.create(path, data)


def _new(name: str, number: int, epoch: int) -> Iterable[Operation]:
    yield Create(state_path(name, number)[: -len("/state")])
    yield Create(state_path(name, number), encode_state(_without_leader(epoch)))


def _without_leader(epoch: int) -> Leadership:
    """Return the state of a partition whose replicas are to be compared."""
    return Leadership(leader=NO_LEADER, leader_epoch=epoch, isr=(), controller_epoch=0)


def _newer_config(store: Store, name: str, copy: TopicCopy, before: TopicCopy) -> Sequence[Operation]:
    """Return the writes of the copy's configuration if it is newer, and the restored one has not been changed since."""
    if copy.overrides == before.overrides or copy.seen_change <= before.seen_change:
        return ()
    path = f"{CONFIGS}/{name}"
    node = find_node(store, path)
    if node is None or decode_config(path, node.data) != before.overrides:
        return ()
    return Set(path, encode_config(copy.overrides), node.version), notice_of(f"topics/{name}")


def _encode(copy: TopicCopy, store_id: str) -> bytes:
    return encode_json({"store_id": store_id, **encode_copy(copy)})


def _id_of(copy: TopicCopy) -> UUID:
    assert copy.topic_id is not None
    return copy.topic_id
