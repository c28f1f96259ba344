"""Topics in the cluster store, at the paths and in the JSON that Kafka has in ZooKeeper (kafka.zk.ZkData).

    /brokers/topics/T                      {"version": 3, "topic_id": "…", "partitions": {"0": [1, 2], …}}: replicas of
                                           each partition
    /brokers/topics/T/partitions/P/state   {"version": 1, "controller_epoch": 0, "leader": 1, "leader_epoch": 0,
                                            "isr": [1, 2]}
    /config/topics/T                       {"version": 1, "config": {"retention.ms": "1000"}}
    /admin/delete_topics/T                 the topic is being deleted

A topic is created, grown and removed in one transaction each. Deletion takes two: a topic is first marked, then its
logs are deleted, then it is removed; so a broker that finds a mark at its start knows what it was doing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sparklog.base.ids import decode_id, encode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.model import PartitionInfo, Topic
from sparklog.cluster.store import Create, Delete, Operation, Set, Store, ensure_path, subtree

TOPICS = "/brokers/topics"
CONFIGS = "/config/topics"
DELETIONS = "/admin/delete_topics"


class TopicStore:
    """Reads and writes the topics of a cluster. Calls block, as those of Store do."""

    def __init__(self, store: Store, defaults: TopicConfig) -> None:
        self._store = store
        self._defaults = defaults
        for path in (TOPICS, CONFIGS, DELETIONS):
            ensure_path(store, path)

    def names(self) -> list[str]:
        return self._store.children(TOPICS)

    def load(self, name: str) -> Topic:
        """Raises NoNode where there is no such topic."""
        topic = _decode(self._store.get(f"{TOPICS}/{name}").data)
        replicas = topic["partitions"]
        states = [_decode(self._store.get(_state_path(name, number)).data) for number in range(len(replicas))]
        overrides = _decode(self._store.get(f"{CONFIGS}/{name}").data)["config"]
        return Topic(
            name=name,
            topic_id=decode_id(topic["topic_id"]),
            partitions=tuple(
                PartitionInfo(
                    leader=state["leader"],
                    leader_epoch=state["leader_epoch"],
                    replicas=tuple(replicas[str(number)]),
                    in_sync_replicas=tuple(state["isr"]),
                )
                for number, state in enumerate(states)
            ),
            overrides=overrides,
            config=TopicConfig.parse(overrides, self._defaults),
        )

    def create(
        self, name: str, topic_id: UUID, partitions: Sequence[PartitionInfo], overrides: Mapping[str, str]
    ) -> None:
        """Raises NodeExists where the topic is there already."""
        self._store.multi(
            (
                Create(f"{TOPICS}/{name}", _assignment(topic_id, partitions)),
                Create(f"{TOPICS}/{name}/partitions"),
                *_create_partitions(name, partitions, first=0),
                Create(f"{CONFIGS}/{name}", _encode({"version": 1, "config": dict(overrides)})),
            )
        )

    def grow(self, topic: Topic, added: Sequence[PartitionInfo]) -> None:
        """Put partitions after those that `topic` has."""
        self._store.multi(
            (
                Set(f"{TOPICS}/{topic.name}", _assignment(topic.topic_id, [*topic.partitions, *added])),
                *_create_partitions(topic.name, added, first=len(topic.partitions)),
            )
        )

    def set_overrides(self, name: str, overrides: Mapping[str, str]) -> None:
        self._store.set(f"{CONFIGS}/{name}", _encode({"version": 1, "config": dict(overrides)}))

    def set_states(self, name: str, partitions: Sequence[PartitionInfo]) -> None:
        """Write who leads each partition, in its order."""
        self._store.multi(Set(_state_path(name, number), _state(info)) for number, info in enumerate(partitions))

    def mark_deleted(self, name: str) -> None:
        ensure_path(self._store, f"{DELETIONS}/{name}")

    def marked_deleted(self) -> list[str]:
        return self._store.children(DELETIONS)

    def remove(self, name: str) -> None:
        """Remove the topic, its configuration and its mark, as far as they are there."""
        paths = (f"{TOPICS}/{name}", f"{CONFIGS}/{name}", f"{DELETIONS}/{name}")
        found = [path for top in paths if self._store.exists(top) for path in subtree(self._store, top)]
        self._store.multi(Delete(path) for path in found)


def _create_partitions(name: str, partitions: Sequence[PartitionInfo], first: int) -> Iterable[Operation]:
    for number, info in enumerate(partitions, first):
        yield Create(f"{TOPICS}/{name}/partitions/{number}")
        yield Create(_state_path(name, number), _state(info))


def _state_path(name: str, number: int) -> str:
    return f"{TOPICS}/{name}/partitions/{number}/state"


def _assignment(topic_id: UUID, partitions: Sequence[PartitionInfo]) -> bytes:
    return _encode(
        {
            "version": 3,
            "topic_id": encode_id(topic_id),
            "partitions": {str(number): list(info.replicas) for number, info in enumerate(partitions)},
        }
    )


def _state(info: PartitionInfo) -> bytes:
    return _encode(
        {
            "version": 1,
            "controller_epoch": 0,
            "leader": info.leader,
            "leader_epoch": info.leader_epoch,
            "isr": list(info.in_sync_replicas),
        }
    )


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    return json.loads(data)  # type: ignore[no-any-return]
