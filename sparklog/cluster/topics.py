"""Topics in the cluster store, at the paths and in the JSON that Kafka has in ZooKeeper (kafka.zk.ZkData).

    /brokers/topics/T                      {"version": 3, "topic_id": "…", "partitions": {"0": [1, 2], …},
                                            "adding_replicas": {…}, "removing_replicas": {…}}: replicas of each
                                           partition, and which of them a reassignment brings and takes
    /brokers/topics/T/partitions/P/state   {"version": 1, "controller_epoch": 0, "leader": 1, "leader_epoch": 0,
                                            "isr": [1, 2]}: written by the controller, and by the leader for its ISR
    /config/topics/T                       {"version": 1, "config": {"retention.ms": "1000"}}
    /config/brokers/N, …/<default>         the same, of one broker and of all
    /config/changes/config_change_*        {"version": 2, "entity_path": "topics/T"}: look there, it has changed
    /admin/delete_topics/T                 the topic is to be deleted

Any broker adds topics, partitions and configurations; a new partition has no state until the controller, which
watches these paths, has elected its leader.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sparklog.base.errors import BadVersion, InvalidConfig, NoNode, StoreError
from sparklog.base.ids import decode_id, encode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.model import PartitionInfo, ReplicaAssignment, Topic
from sparklog.cluster.store import Create, Operation, Set, Store, Watch, ensure_path

TOPICS = "/brokers/topics"
CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CONFIG_CHANGES = "/config/changes"
DELETIONS = "/admin/delete_topics"
ALL_BROKERS = -1
"""The id under which keys stand that were given to all brokers at once."""
_DEFAULT_ENTITY = "<default>"
NO_LEADER = -1
CHANGES = 100  # attempts against others that change the same node
ChangeOverrides = Callable[[Mapping[str, str]], Mapping[str, str]]
NO_EPOCH = -1
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What `/brokers/topics/T` says: who has the partitions, in their order."""

    topic_id: UUID
    partitions: tuple[ReplicaAssignment, ...]
    version: int
    """Of the node: who writes it again compares with this."""


class TopicStore:
    """Reads and writes the topics of a cluster. Calls block, as those of Store do."""

    def __init__(self, store: Store, defaults: TopicConfig) -> None:
        self._store = store
        self._defaults = defaults

    def make_paths(self) -> None:
        """Make the nodes above all others, as far as they are not there."""
        for path in (TOPICS, CONFIGS, BROKER_CONFIGS, CONFIG_CHANGES, DELETIONS):
            ensure_path(self._store, path)

    # Topics

    def names(self) -> list[str]:
        return self._store.children(TOPICS)

    def exists(self, name: str) -> bool:
        return self._store.exists(f"{TOPICS}/{name}")

    def load_assignment(self, name: str) -> Assignment:
        """Raises NoNode where there is no such topic."""
        node = self._store.get(f"{TOPICS}/{name}")
        return decode_assignment(node.data, node.version)

    def load_overrides(self, name: str) -> dict[str, str]:
        """The topic's own configuration; empty where it has none."""
        return self._config(f"{CONFIGS}/{name}")

    def load_config(self, name: str) -> TopicConfig:
        """What the topic goes by."""
        return config_of(name, self.load_overrides(name), self._defaults)

    def load(self, name: str) -> Topic:
        """The topic whole. Raises NoNode where there is none."""
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
        return dataclasses.replace(
            unled,
            leader=state["leader"],
            leader_epoch=state["leader_epoch"],
            in_sync_replicas=tuple(state["isr"]),
            partition_epoch=node.version,
        )

    def add(self, name: str, topic_id: UUID, replicas: Sequence[Sequence[int]], overrides: Mapping[str, str]) -> None:
        """A new topic, with the replicas of each partition; nobody leads them yet. Raises NodeExists."""
        partitions = [ReplicaAssignment(replicas=tuple(each)) for each in replicas]
        config = f"{CONFIGS}/{name}"
        write = Set if self._store.exists(config) else Create  # what a topic of that name has left behind
        self._store.multi(
            (
                write(config, _config_data(overrides)),
                Create(f"{TOPICS}/{name}", encode_assignment(topic_id, partitions)),
            )
        )

    def set_assignment(self, name: str, assignment: Assignment) -> int:
        """Write it where the node is as it was read: at `assignment.version`; the new version.

        Raises NoNode or BadVersion.
        """
        data = encode_assignment(assignment.topic_id, assignment.partitions)
        return self._store.set(f"{TOPICS}/{name}", data, assignment.version)

    def create(
        self, name: str, topic_id: UUID, partitions: Sequence[PartitionInfo], overrides: Mapping[str, str]
    ) -> None:
        """A topic with the states of its partitions, as they were before the store knew it. Raises NodeExists."""
        self._store.multi(
            (
                Create(f"{TOPICS}/{name}", encode_assignment(topic_id, partitions)),
                Create(f"{TOPICS}/{name}/partitions"),
                *_states(name, partitions),
                Create(f"{CONFIGS}/{name}", _config_data(overrides)),
            )
        )

    def mark_deleted(self, name: str) -> None:
        """Ask for the topic's deletion."""
        ensure_path(self._store, f"{DELETIONS}/{name}")

    def is_marked_deleted(self, name: str, watch: Watch | None = None) -> bool:
        return self._store.exists(f"{DELETIONS}/{name}", watch)

    def marked_deleted(self) -> list[str]:
        return self._store.children(DELETIONS)

    # Configurations

    def change_overrides(self, name: str, change: ChangeOverrides) -> dict[str, str]:
        """Give a topic the configuration that `change` makes of the one it has, and tell the controller; what it is."""
        changed = self._change(f"{CONFIGS}/{name}", change)
        self._notify(f"topics/{name}")
        return changed

    def load_broker_overrides(self) -> dict[int, dict[str, str]]:
        """Of each broker that has some, what was changed while it ran; under ALL_BROKERS those of all."""
        return {
            ALL_BROKERS if entity == _DEFAULT_ENTITY else int(entity): overrides
            for entity in self._store.children(BROKER_CONFIGS)
            if (overrides := self._config(f"{BROKER_CONFIGS}/{entity}"))
        }

    def change_broker_overrides(self, broker_id: int, change: ChangeOverrides) -> dict[str, str]:
        """The same with what is given to a broker, or to ALL_BROKERS."""
        entity = _DEFAULT_ENTITY if broker_id == ALL_BROKERS else str(broker_id)
        ensure_path(self._store, f"{BROKER_CONFIGS}/{entity}")
        changed = self._change(f"{BROKER_CONFIGS}/{entity}", change)
        self._notify(f"brokers/{entity}")
        return changed

    def _change(self, path: str, change: ChangeOverrides) -> dict[str, str]:
        """Raises StoreError where others change it all the time."""
        for _ in range(CHANGES):
            node = self._store.get(path)
            changed = dict(change(_overrides(node.data)))
            with contextlib.suppress(BadVersion):
                self._store.set(path, _config_data(changed), node.version)
                return changed
        raise StoreError(f"{path} was changed by others {CHANGES} times")

    def _config(self, path: str) -> dict[str, str]:
        try:
            return _overrides(self._store.get(path).data)
        except NoNode:
            return {}

    def _notify(self, entity_path: str) -> None:
        data = _encode({"version": 2, "entity_path": entity_path})
        self._store.create(f"{CONFIG_CHANGES}/config_change_", data, sequential=True)


def config_of(name: str, overrides: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    """What a topic goes by; keys that mean nothing here, as Apache Kafka's tools may have written, are left out."""
    try:
        return TopicConfig.parse(overrides, defaults)
    except InvalidConfig as wrong:
        logger.warning("topic %s: %s", name, wrong)
    config = defaults
    for key, value in overrides.items():
        with contextlib.suppress(InvalidConfig):
            config = TopicConfig.parse({key: value}, config)
    return config


def state_path(name: str, number: int) -> str:
    """Where the state of a partition stands."""
    return f"{TOPICS}/{name}/partitions/{number}/state"


def without_leader(assignment: ReplicaAssignment) -> PartitionInfo:
    """A partition that has no state yet."""
    return PartitionInfo(
        leader=NO_LEADER,
        leader_epoch=NO_EPOCH,
        replicas=assignment.replicas,
        in_sync_replicas=(),
        adding=assignment.adding,
        removing=assignment.removing,
        partition_epoch=NO_EPOCH,
    )


def encode_assignment(topic_id: UUID, partitions: Iterable[ReplicaAssignment | PartitionInfo]) -> bytes:
    """The data of `/brokers/topics/T`."""
    numbered = [(str(number), info) for number, info in enumerate(partitions)]
    return _encode(
        {
            "version": 3,
            "topic_id": encode_id(topic_id),
            "partitions": {number: list(info.replicas) for number, info in numbered},
            "adding_replicas": {number: list(info.adding) for number, info in numbered if info.adding},
            "removing_replicas": {number: list(info.removing) for number, info in numbered if info.removing},
        }
    )


def decode_assignment(data: bytes, version: int) -> Assignment:
    """What `encode_assignment` wrote, or a broker before it."""
    topic = _decode(data)
    replicas, adding, removing = (topic.get(key, {}) for key in ("partitions", "adding_replicas", "removing_replicas"))
    numbers = [str(number) for number in range(len(replicas))]
    return Assignment(
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
    )


def decode_config_change(data: bytes) -> str:
    """Whose configuration has changed: `topics/T`, `brokers/N`; empty for what is not known."""
    return str(_decode(data).get("entity_path", ""))


def _states(name: str, partitions: Sequence[PartitionInfo]) -> Iterable[Operation]:
    for number, info in enumerate(partitions):
        yield Create(f"{TOPICS}/{name}/partitions/{number}")
        yield Create(state_path(name, number), _state(info))


def _overrides(data: bytes) -> dict[str, str]:
    return dict(_decode(data)["config"]) if data else {}


def _config_data(overrides: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(overrides)})


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
