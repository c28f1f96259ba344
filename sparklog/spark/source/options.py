"""What a read or a write is described by: the values that the options of the data source become (option_parsing.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from sparklog.base.ids import TopicPartition

LATEST_IN_JSON = -1
EARLIEST_IN_JSON = -2


class Edge(Enum):
    """An end of a log; also what `-2` and `-1` stand for in JSON."""

    EARLIEST = EARLIEST_IN_JSON
    LATEST = LATEST_IN_JSON


class ReadMode(StrEnum):
    """How tasks get records: from segment files, from the broker, from files where they can be seen; or what has been
    archived from the archive, and the rest as AUTO.
    """

    SEGMENTS = "segments"
    FETCH = "fetch"
    AUTO = "auto"
    HISTORY = "history"


class NoMatch(StrEnum):
    """What to do where no record is as late as a starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; -1 and -2 are the ends of the log."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record as late as a timestamp in ms: one for each partition, or one for all."""

    timestamps_ms: Mapping[TopicPartition, int] | int
    no_match: NoMatch = NoMatch.ERROR


@dataclass(frozen=True, slots=True)
class AtCommitted:
    """Where the consumer group has come to; the earliest record where it has committed nothing."""


Position = Edge | AtOffsets | AtTimestamps | AtCommitted


@dataclass(frozen=True, slots=True)
class AllTopics:
    """Every topic of a log directory, internal ones left out."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics by name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics whose whole name matches a regular expression, internal ones left out."""

    pattern: str

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions by name."""

    partitions: frozenset[TopicPartition]


Selection = AllTopics | Topics | TopicPattern | Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """How the broker is reached."""

    bootstrap_servers: str
    timeout_ms: int
    """Deadline of one call, of a fetch too: a call that hangs would hang the query."""
    retries: int
    retry_backoff_ms: int
    security: Mapping[str, Any]
    """Keyword arguments of the clients of `sparklog.client`: how they speak TLS."""
    group_id: str | None
    """The consumer group that progress is committed to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is read, from where to where, and how."""

    selection: Selection
    starting: Position
    ending: Position
    path: str | None
    """A log directory or a partition's folder, local or a URI; then there is no broker."""
    broker: BrokerOptions | None
    read_mode: ReadMode
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int
    """0: as many tasks as partitions."""
    max_records_per_partition: int
    """0: no limit."""
    max_offsets_per_trigger: int
    """0: no limit."""
    filter_pushdown: bool
    archive: str | None = None
    """Where HISTORY finds what has been archived; None: where the topic's retention.archive says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where records go, and with which settings of the producer."""

    topic: str | None
    include_headers: bool
    producer: Mapping[str, Any]
    """Keyword arguments of `sparklog.client.Producer`."""
