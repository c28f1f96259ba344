"""Copies of the cluster's topics in each log directory, so that a lost cluster store loses no topic and no record.

    <log dir>/topic-config-checkpoint
        {"version": 0, "seen_change": 812, "store_id": "b3JkZXJz…",
         "brokers": {"<default>": {"log.retention.ms": "86400000"}, "1": {}}, "topics": {
         "orders": {"topic_id": "CeWNTpoLSru0hj3_5YiFeQ", "configs": {"retention.ms": "-1"}, "seen_change": 790,
                    "partitions": {"0": {"replicas": [1, 2], "leader_epoch": 5}}}}}

The cluster store holds a topic's valid configuration and assignment; this file holds the last known copy.

- `seen_change` is the number of the store's newest change when the copy was written. A store with a lower number has
  lost changes. Of two brokers' copies of a configuration, the one with the greater number is newer.
- `brokers` has the keys that were set at run time for all brokers and for this broker. Without them, other defaults of
  topics could apply and delete records.
- `store_id` names the store. A store with another id has replaced it (cluster/identity.py).
- `leader_epoch` of a partition is the epoch in which the broker learned its replicas. Each change of replicas begins a
  new leader epoch, so the copy with the greater epoch is newer.
- `leader_epoch` of a topic is set once its epochs have leapt on any broker (broker/restoration.py): clients may know
  that epoch, though no record has it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol
from uuid import UUID

from msgspec import Struct, field, structs

from sparklog.base.errors import InvalidConfig
from sparklog.base.fs import Fs
from sparklog.base.ids import decode_id, encode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.checkpoints import CorruptCheckpoint, read_file, replace_file

TOPIC_CONFIGS = "topic-config-checkpoint"
LEAP = 100_000
"""The size of a leap: more elections than happen between two records. 2^31 epochs allow 20,000 leaps."""
_VERSION = 0
Overrides = Mapping[str, str]
"""A topic's own configuration, by Kafka's keys."""
UNLIMITED: Overrides = MappingProxyType({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})
"""The configuration of an unknown topic: all its records are kept."""
_INSTEAD: Mapping[str, Overrides] = MappingProxyType(
    {
        **{key: {key: UNLIMITED[key]} for key in ("retention.ms", "retention.bytes")},
        **dict.fromkeys(
            ("cleanup.policy", "compaction.strategy", "delete.retention.ms", "min.compaction.lag.ms"), UNLIMITED
        ),
    }
)
"""Values that apply if one of these keys cannot be read, because each of them decides which records stay."""
logger = logging.getLogger(__name__)


def config_of(topic: str, overrides: Overrides, defaults: TopicConfig) -> TopicConfig:
    """Return a topic's effective configuration.

    An unreadable key is ignored, such as one of a later version or of Apache Kafka's tools. A default that could delete
    records does not take its place.
    """
    try:
        return TopicConfig.parse(overrides, defaults)
    except InvalidConfig:
        pass  # read the keys one by one below
    config = defaults
    instead: dict[str, str] = {}
    for key, value in overrides.items():
        try:
            config = TopicConfig.parse({key: value}, config)
        except InvalidConfig as error:
            instead |= _INSTEAD.get(key, {})
            stays = "; until it is set again, its records stay" if key in _INSTEAD else ""
            logger.error("topic %s: key %s is ignored: %s%s", topic, key, error, stays)
    return TopicConfig.parse(instead, config)


class AssignmentCopy(Struct, frozen=True, kw_only=True):
    """The copy of one partition's replicas, and of those that a reassignment adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader_epoch: int = -1
    """The leader epoch in which the broker learned the replicas; -1: they are uncertain, or there was no leader yet."""

    def says_more_than(self, before: AssignmentCopy | None) -> bool:
        """Return whether this copy replaces `before`: only a certain one does."""
        if before is None:
            return True
        is_sure = self.leader_epoch >= 0
        return is_sure and (before.leader_epoch < 0 or self.brokers != before.brokers)

    def is_newer_than(self, other: AssignmentCopy | None) -> bool:
        """Return whether this copy is newer than another broker's; of equal epochs, the one with more replicas is."""
        return other is None or (self.brokers != other.brokers and self.age > other.age)

    @property
    def brokers(self) -> tuple[tuple[int, ...], ...]:
        """The replicas, those being added and those being removed, by which assignments are compared."""
        return self.replicas, self.adding, self.removing

    @property
    def age(self) -> tuple[int, int]:
        """The leader epoch and the number of replicas, by which copies are ordered; the greater one is newer."""
        return self.leader_epoch, len(self.replicas)


class PartitionAssignment(Protocol):
    """The source of a copy: a partition in a request of the controller, or in the metadata cache."""

    @property
    def replicas(self) -> tuple[int, ...]:
        """As in ReplicaAssignment."""
        ...

    @property
    def adding(self) -> tuple[int, ...]:
        """As in ReplicaAssignment."""
        ...

    @property
    def removing(self) -> tuple[int, ...]:
        """As in ReplicaAssignment."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The partition's leader epoch, from the controller."""
        ...

    @property
    def is_restored(self) -> bool:
        """Whether the partition was restored and has no leader yet, so that its replicas are uncertain."""
        ...


AssignmentCopies = Mapping[int, AssignmentCopy]
"""Assignments by the numbers of a topic's partitions."""


class TopicCopy(Struct, frozen=True):
    """The copy of one topic: its configuration and its assignment."""

    topic_id: UUID | None
    overrides: Overrides
    leader_epoch: int = -1
    """A leader epoch that its partitions have leapt to, less than LEAP below the highest; -1 if they never have."""
    partitions: AssignmentCopies = field(default_factory=dict)
    """The known partitions; empty in a copy from an earlier version of sparklog."""
    seen_change: int = 0
    """The number of the store's newest change when the configuration was learned."""

    @classmethod
    def of(cls, topic_id: UUID, overrides: Overrides, partitions: Mapping[int, PartitionAssignment]) -> TopicCopy:
        """Return the copy of a topic with its known partitions."""
        latest = max((each.leader_epoch for each in partitions.values()), default=-1)
        kept = {
            number: AssignmentCopy(
                replicas=each.replicas,
                adding=each.adding,
                removing=each.removing,
                leader_epoch=-1 if each.is_restored else each.leader_epoch,
            )
            for number, each in partitions.items()
        }
        return cls(topic_id, overrides, latest // LEAP * LEAP if latest >= LEAP else -1, kept)

    def learn(self, before: TopicCopy | None, seen_change: int) -> TopicCopy:
        """Return the copy that replaces `before`. Unchanged assignments keep their leader epoch."""
        if before is None or before.topic_id != self.topic_id:
            return structs.replace(self, seen_change=seen_change)
        partitions = dict(before.partitions)
        partitions |= {
            number: new for number, new in self.partitions.items() if new.says_more_than(partitions.get(number))
        }
        is_configured = self.overrides == before.overrides
        return TopicCopy(
            self.topic_id,
            before.overrides if is_configured else self.overrides,
            max(before.leader_epoch, self.leader_epoch),
            partitions,
            before.seen_change if is_configured else seen_change,
        )


class TopicCopies(Struct, frozen=True):
    """The copies in one log directory."""

    topics: Mapping[str, TopicCopy] = field(default_factory=dict)
    seen_change: int = 0
    store_id: str = ""
    brokers: Mapping[str, Overrides] = field(default_factory=dict)
    """The keys that were set at run time, by the name of their node in the store."""


class TopicConfigCheckpoint:
    """The file with the copies. The caller ensures that one thread writes it at a time."""

    def __init__(self, fs: Fs, folder: str) -> None:
        self._fs = fs
        self._path = f"{folder}/{TOPIC_CONFIGS}"
        self._written: dict[str, tuple[TopicCopy, str]] = {}
        """The last written copies with their JSON, which is reused for unchanged copies."""

    def read(self) -> TopicCopies:
        """Return the copies; empty if there is no file. Raises CorruptCheckpoint or OSError."""
        if not self._fs.exists(self._path):
            return TopicCopies()
        try:
            content = json.loads(read_file(self._fs, self._path))
            if content["version"] != _VERSION:
                raise CorruptCheckpoint(f"{self._path}: version {content['version']}, only {_VERSION} is known")
            topics = {str(name): decode_copy(topic) for name, topic in content["topics"].items()}
            brokers = {str(name): decode_overrides(keys) for name, keys in content.get("brokers", {}).items()}
            return TopicCopies(topics, int(content["seen_change"]), str(content.get("store_id", "")), brokers)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptCheckpoint(f"{self._path}: {error!r}") from None

    def write(self, kept: TopicCopies) -> None:
        """Replace the file. Raises OSError."""
        numbers = {"version": _VERSION, "seen_change": kept.seen_change, "store_id": kept.store_id}
        head = _to_json(numbers | {"brokers": {name: dict(keys) for name, keys in sorted(kept.brokers.items())}})
        self._written = {name: (topic, self._encode(name, topic)) for name, topic in sorted(kept.topics.items())}
        topics = ",".join(f"{_to_json(name)}:{encoded}" for name, (_, encoded) in self._written.items())
        replace_file(self._fs, self._path, f'{head[:-1]},"topics":{{{topics}}}}}'.encode())

    def _encode(self, name: str, topic: TopicCopy) -> str:
        written, encoded = self._written.get(name, (None, ""))
        return encoded if written is topic else _to_json(encode_copy(topic))


def _to_json(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"))


def encode_copy(kept: TopicCopy) -> dict[str, Any]:
    """Return the copy for JSON."""
    content: dict[str, Any] = {
        "topic_id": encode_id(kept.topic_id) if kept.topic_id else None,
        "configs": dict(kept.overrides),
        "seen_change": kept.seen_change,
        "partitions": {str(number): _encode(each) for number, each in sorted(kept.partitions.items())},
    }
    return content if kept.leader_epoch < 0 else content | {"leader_epoch": kept.leader_epoch}


def decode_copy(content: Mapping[str, Any]) -> TopicCopy:
    """Parse what `encode_copy` returned. Raises ValueError, KeyError, TypeError or AttributeError."""
    topic_id = content["topic_id"]
    return TopicCopy(
        None if topic_id is None else decode_id(topic_id),
        decode_overrides(content["configs"]),
        int(content.get("leader_epoch", -1)),
        {int(number): _decode(each) for number, each in content.get("partitions", {}).items()},
        int(content.get("seen_change", 0)),
    )


def decode_overrides(content: Mapping[str, Any]) -> Overrides:
    """Return keys and their values as texts. Raises AttributeError if `content` is no mapping."""
    return {str(key): str(value) for key, value in content.items()}


def _encode(kept: AssignmentCopy) -> dict[str, Any]:
    content: dict[str, Any] = {"replicas": list(kept.replicas), "leader_epoch": kept.leader_epoch}
    moving = {"adding": list(kept.adding), "removing": list(kept.removing)}
    return content | {key: brokers for key, brokers in moving.items() if brokers}


def _decode(content: Mapping[str, Any]) -> AssignmentCopy:
    replicas, adding, removing = (
        tuple(int(broker) for broker in content.get(key, ())) for key in ("replicas", "adding", "removing")
    )
    return AssignmentCopy(
        replicas=replicas, adding=adding, removing=removing, leader_epoch=int(content["leader_epoch"])
    )
