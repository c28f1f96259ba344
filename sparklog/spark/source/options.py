"""The options of a read or a write as values; option_parsing.py parses them from the data source's options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

from sparklog.arrow.options import IsolationLevel, ParseMode
from sparklog.base.ids import TopicPartition
from sparklog.schemas.protobuf import ProtobufReadOptions
from sparklog.schemas.registry_options import RegistryOptions

if TYPE_CHECKING:
    from sparklog.arrow.typed import DecodingPlan
    from sparklog.spark.source.encoding import RowEncoding

LATEST_IN_JSON = -1
EARLIEST_IN_JSON = -2


class Edge(Enum):
    """One end of a log: `-2` (earliest) or `-1` (latest) in Spark's JSON offsets."""

    EARLIEST = EARLIEST_IN_JSON
    LATEST = LATEST_IN_JSON


class ReadMode(StrEnum):
    """How tasks get records.

    SEGMENTS: from segment files. FETCH: from the broker. AUTO: from files if they are visible, else from the broker.
    HISTORY: archived records from the archive, the rest as AUTO.
    """

    SEGMENTS = "segments"
    FETCH = "fetch"
    AUTO = "auto"
    HISTORY = "history"


class DeliveryGuarantee(StrEnum):
    """How often readers of committed records see a row if Spark runs a task or a batch again.

    EXACTLY_ONCE: a batch or a job is in its topic once and as a whole, or not at all. AT_LEAST_ONCE: records of earlier
    attempts stay.
    """

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class ColumnFormat(StrEnum):
    """How keys or values are encoded.

    RAW: they stay bytes. STRING: UTF-8. JSON: objects. AVRO, PROTOBUF: by a schema.
    """

    RAW = "raw"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class NoMatchStrategy(StrEnum):
    """What to do if a partition has no record at or after a starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """One offset per partition; -1 (latest) and -2 (earliest) mean the ends of the log."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """The first record at or after a timestamp in ms: one timestamp per partition, or one for all."""

    timestamps_ms: Mapping[TopicPartition, int] | int
    no_match: NoMatchStrategy = NoMatchStrategy.ERROR


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """The committed offset of the consumer group; the earliest record if the group has committed none."""


Position = Edge | SpecificOffsets | SpecificTimestamps | CommittedOffsets


@dataclass(frozen=True, slots=True)
class AllTopics:
    """Every topic of a log directory, except internal topics."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Topics by name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Topics whose whole name matches a regular expression, except internal topics."""

    pattern: str

    def matches(self, topic: str) -> bool:
        """Return whether the pattern matches the whole name of a topic, internal or not."""
        return re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    """Partitions by name."""

    partitions: frozenset[TopicPartition]


Selection = AllTopics | Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumn:
    """How the keys or the values are read."""

    format: ColumnFormat
    schema: str | None
    """Avro: the writer's schema, of bodies without a frame; None: bodies name their schemas in the registry.

    Protobuf: the same, as the path of a FileDescriptorSet or its base64. JSON: the fields, as Spark's SQL writes them.
    """
    reader_schema: str | None
    """None: the writer's schema, or the latest of the subject."""
    subject: str | None
    """Subject in the registry; None: the read has several topics and names no subject."""
    message_name: str | None = None
    """Protobuf: the message; None: the only one of the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedOptions:
    """Which of the columns `key` and `value` are typed, and how malformed records are treated."""

    columns: Mapping[str, TypedColumn]
    mode: ParseMode
    corrupt_column: str
    registry: RegistryOptions | None
    protobuf: ProtobufReadOptions
    dead_letter_topic: str | None = None
    """The topic that gets copies of malformed records; None: none does."""


class SchemaChoice(StrEnum):
    """Which schema of a subject is written.

    REGISTER: the given or derived one, which is registered if it is new. KNOWN: the same, but the subject must have it.
    LATEST: the latest version of the subject.
    """

    REGISTER = "register"
    KNOWN = "known"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedColumn:
    """How the keys or the values are written."""

    format: ColumnFormat
    schema: str | None
    """Avro: the schema; Protobuf: a descriptor set, as of reads; JSON: the JSON Schema that is registered.

    None: that of the registry, or the one derived from the column's type.
    """
    subject: str | None
    """Subject in the registry; None: no registry is used."""
    schema_id: int | None
    """Number of the schema in the registry; None: `EncodingOptions.choice` decides."""
    message_name: str | None = None
    """Protobuf: the message; None: the only one of the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingOptions:
    """Which of the columns `key` and `value` are encoded."""

    columns: Mapping[str, EncodedColumn]
    registry: RegistryOptions | None
    """None: records do not name their schemas."""
    choice: SchemaChoice
    ids_in_headers: bool = False
    """Whether headers name the schemas by GUID. Otherwise bytes before each body name them by number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to connect to the brokers."""

    bootstrap_servers: str
    timeout_ms: int
    """Deadline of one call, fetches included: a call without one could hang the query."""
    retries: int
    retry_backoff_ms: int
    security: Mapping[str, Any]
    """Keyword arguments of the clients of `sparklog.client`: their TLS settings."""
    group_id: str | None
    """Consumer group to which streams commit their progress, and whose offsets `startingOffsets = group` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """How much one trigger of a stream reads. 0: no limit."""

    max_offsets: int = 0
    max_bytes: int = 0
    """Size of the batches in the log, compressed as they are there."""
    min_offsets: int = 0
    """A trigger waits for this many offsets."""
    max_delay_ms: int = 900_000
    """A trigger waits for `min_offsets` no longer than this after the last trigger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The topics to read, the positions to read from and to, and how to read."""

    selection: Selection
    starting: Position
    ending: Position
    path: str | None
    """A log directory or a partition's folder, local or a URI; the read then uses no broker."""
    broker: ConnectionOptions | None
    read_mode: ReadMode
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int
    """0: one task per partition."""
    max_records_per_partition: int
    """0: no limit."""
    filter_pushdown: bool
    trigger_limits: TriggerLimits = TriggerLimits()
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    tracing_endpoint: str | None = None
    """OTLP endpoint for spans of micro-batches; None: no spans."""
    archive: str | None = None
    """Delta table of archived records for HISTORY; None: the one that the topic's retention.archive names."""
    decoding: DecodingPlan | None = None
    """How to decode keys and values, from `decoding.plan_decoding`; None: they stay bytes."""


@dataclass(frozen=True, slots=True)
class ApplicationTransaction:
    """One write of an application that numbers its writes, as for Delta tables: each version is written once."""

    app_id: str
    version: int
    """Increases from write to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The topic to write to, and the settings of the producer."""

    topic: str | None
    include_headers: bool
    producer: Mapping[str, Any]
    """Keyword arguments of `sparklog.client.Producer`."""
    connection: Mapping[str, Any]
    """The arguments in `producer` that every client takes."""
    guarantee: DeliveryGuarantee
    sink_id: str | None
    """Distinguishes several writes of one query; each write has batches of its own."""
    transaction: ApplicationTransaction | None
    timeout_ms: int
    """How long a batch stays open without a renewal by a task."""
    typed: EncodingOptions | None = None
    """None: keys and values are texts or bytes."""
    encoding: RowEncoding | None = None
    """How to encode keys and values, from `encoding.plan_encoding`; None: they are texts or bytes."""
