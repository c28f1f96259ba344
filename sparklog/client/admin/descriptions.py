"""Results of the admin client: frozen values, made from the messages of the Admin service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.base.message_mapping import to_value
from sparklog.v1 import admin_pb2

_SOURCES = {
    admin_pb2.DEFAULT_CONFIG: "default",
    admin_pb2.STATIC_BROKER_CONFIG: "broker",
    admin_pb2.TOPIC_CONFIG: "topic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """A topic and its number of partitions."""

    name: str
    partitions: int
    internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition. If `error` is set, unknown offsets and leaders are -1, and an unknown size is 0."""

    partition: int
    error: KafkaError | None
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic; `configs` has only values that differ from the broker's defaults.

    unsure: whether the cluster store had lost the topic, or changes of it, so that its replicas may be older than what
    brokers have; None: not known, or not asked for.
    """

    name: str
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: dict[str, str]
    unsure: bool | None = None

    @property
    def records(self) -> int:
        """Number of offsets from log start to high watermark, in all partitions; a compacted log has fewer records."""
        return sum(max(part.high_watermark - part.log_start_offset, 0) for part in self.partitions)

    @property
    def size_bytes(self) -> int:
        """The bytes of one copy of all partitions: those of their leaders."""
        return sum(part.size_bytes for part in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """The value of a configuration key; `source` is topic, broker or default."""

    value: str
    source: str
    documentation: str
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """A broker; `grpc_address` is its address for clients, as HOST:PORT."""

    id: int
    grpc_address: str
    rack: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """A cluster; `controller_id` is -1 if there is no controller at the moment.

    `cordoned`: ids of the brokers, up or down, that get no new partitions.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]
    cordoned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition that is moving: `replicas` are its target replicas, then those that will be removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the move."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the move; their order may differ if target and origin overlap."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirPartition:
    """A partition in a log directory."""

    topic: str
    partition: int
    size_bytes: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    is_future: bool = False
    """A copy that is being made: the replica moves here from another directory of its broker."""
    offset_lag: int = 0
    """How many offsets the copy is behind the replica's log end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A log directory; `path` is absolute, on its broker's machine. `error` is set if the directory has failed.

    is_full: the broker appends nothing there until there is room.
    """

    path: str
    error: KafkaError | None
    partitions: tuple[LogDirPartition, ...]
    is_full: bool = False


def to_topic(found: Any) -> TopicDescription:
    """Return the value of a TopicDescription message; its partitions are sorted."""
    partitions = (to_value(part, PartitionDescription) for part in found.partitions)
    return to_value(
        found,
        TopicDescription,
        partitions=tuple(sorted(partitions, key=lambda part: part.partition)),
        configs=dict(sorted(found.configs.items())),
    )


def to_config_values(found: Any) -> dict[str, ConfigValue]:
    """Return the values in a ResourceConfigs message, by key, sorted."""
    return {
        entry.name: to_value(entry, ConfigValue, source=_SOURCES.get(entry.source, "default"))
        for entry in sorted(found.entries, key=lambda entry: entry.name)
    }


def to_reassignment(found: Any) -> Reassignment:
    """Return the value of a PartitionReassignment message."""
    return Reassignment(replicas=tuple(found.replicas), adding=tuple(found.adding), removing=tuple(found.removing))


def to_log_dir(found: Any) -> LogDirDescription:
    """Return the value of a LogDir message; its partitions are sorted."""
    partitions = (to_value(part, LogDirPartition) for part in found.partitions)
    return to_value(
        found,
        LogDirDescription,
        partitions=tuple(sorted(partitions, key=lambda part: (part.topic, part.partition))),
    )
