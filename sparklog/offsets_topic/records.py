"""The records of `__consumer_offsets` as values, and their encoding and decoding.

    kind   key (group, ...)       value
    0, 1   OffsetKey              OffsetValue: the offset that a group has committed for a partition
    2      GroupKey               GroupValue: a classic group in one generation, with its members' assignments
    3      ConsumerGroupKey       ConsumerGroupValue: the group's epoch
    5      ConsumerMemberKey      ConsumerMemberValue: a member, as it describes itself
    6      TargetEpochKey         TargetEpochValue: the epoch of the target assignment
    7      TargetAssignmentKey    TargetAssignmentValue: the partitions that a member is to have
    8      CurrentAssignmentKey   CurrentAssignmentValue: the partitions that a member has and must give up
    16     RegexKey               RegexValue: the topics that match a regular expression

A record without a value is a tombstone: the object no longer exists. Kinds 3 to 16 belong to groups of the new
protocol (KIP-848). The bytes are Apache Kafka's (schemas.py). Values are written in the versions that
Kafka 4.3 writes: offsets in version 4, or 1 if they have an expiry time of their own, classic groups in 3, all others
in 0. All older versions can be read. Records of other kinds (share and streams groups; kind 4, which Kafka no longer
uses) are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any
from uuid import UUID

from msgspec import Struct

from sparklog.base.errors import CorruptRecord
from sparklog.base.schemas import ZERO_ID, read_key, read_value, write_key, write_value
from sparklog.offsets_topic import commit_codec
from sparklog.offsets_topic.schemas import OFFSETS_TOPIC

NO_TIMESTAMP = -1


class OffsetKey(Struct, frozen=True, kw_only=True):
    group_id: str
    topic: str
    partition: int


class OffsetValue(Struct, frozen=True, kw_only=True):
    """A committed offset, with its metadata and times."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    """The time at which the offset expires; -1: offsets.retention.minutes applies."""
    topic_id: UUID = ZERO_ID


class GroupKey(Struct, frozen=True, kw_only=True):
    group_id: str


class MemberMetadata(Struct, frozen=True, kw_only=True):
    """A member of a classic group, with its metadata for the chosen protocol."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(Struct, frozen=True, kw_only=True):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int = NO_TIMESTAMP
    members: Sequence[MemberMetadata]


class ConsumerGroupKey(Struct, frozen=True, kw_only=True):
    group_id: str


class ConsumerGroupValue(Struct, frozen=True, kw_only=True):
    epoch: int
    metadata_hash: int = 0


class ConsumerMemberKey(Struct, frozen=True, kw_only=True):
    group_id: str
    member_id: str


class SupportedProtocol(Struct, frozen=True, kw_only=True):
    name: str
    metadata: bytes


class ClassicMemberMetadata(Struct, frozen=True, kw_only=True):
    """Data of a member that uses the classic protocol in a group of the new protocol."""

    session_timeout_ms: int
    supported_protocols: Sequence[SupportedProtocol]


class ConsumerMemberValue(Struct, frozen=True, kw_only=True):
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str] = ()
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = None


class TargetEpochKey(Struct, frozen=True, kw_only=True):
    group_id: str


class TargetEpochValue(Struct, frozen=True, kw_only=True):
    assignment_epoch: int
    assignment_timestamp_ms: int = 0


class TopicPartitions(Struct, frozen=True, kw_only=True):
    topic_id: UUID
    partitions: Sequence[int]


class TargetAssignmentKey(Struct, frozen=True, kw_only=True):
    group_id: str
    member_id: str


class TargetAssignmentValue(Struct, frozen=True, kw_only=True):
    topic_partitions: Sequence[TopicPartitions]


class AssignedPartitions(Struct, frozen=True, kw_only=True):
    topic_id: UUID
    partitions: Sequence[int]
    assignment_epochs: Sequence[int] = ()
    """For each partition, the epoch in which the member got it."""


class CurrentAssignmentKey(Struct, frozen=True, kw_only=True):
    group_id: str
    member_id: str


class CurrentAssignmentValue(Struct, frozen=True, kw_only=True):
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: Sequence[AssignedPartitions]
    partitions_pending_revocation: Sequence[AssignedPartitions]


class RegexKey(Struct, frozen=True, kw_only=True):
    group_id: str
    regular_expression: str


class RegexValue(Struct, frozen=True, kw_only=True):
    topics: Sequence[str]
    version: int
    timestamp_ms: int


Key = (
    OffsetKey
    | GroupKey
    | ConsumerGroupKey
    | ConsumerMemberKey
    | TargetEpochKey
    | TargetAssignmentKey
    | CurrentAssignmentKey
    | RegexKey
)  # fmt: skip
Value = (
    OffsetValue
    | GroupValue
    | ConsumerGroupValue
    | ConsumerMemberValue
    | TargetEpochValue
    | TargetAssignmentValue
    | CurrentAssignmentValue
    | RegexValue
)


class CoordinatorRecord(Struct, frozen=True):
    """A record; a `value` of None is a tombstone."""

    key: Key
    value: Value | None = None


_KINDS: dict[int, tuple[type[Key], type[Value]]] = {
    0: (OffsetKey, OffsetValue),
    1: (OffsetKey, OffsetValue),
    2: (GroupKey, GroupValue),
    3: (ConsumerGroupKey, ConsumerGroupValue),
    5: (ConsumerMemberKey, ConsumerMemberValue),
    6: (TargetEpochKey, TargetEpochValue),
    7: (TargetAssignmentKey, TargetAssignmentValue),
    8: (CurrentAssignmentKey, CurrentAssignmentValue),
    16: (RegexKey, RegexValue),
}
_NUMBERS: dict[type, int] = {key: number for number, (key, _) in _KINDS.items()}


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return the key and value bytes of a record, as Kafka writes them."""
    if isinstance(record.key, OffsetKey):
        return _encode_offset(record.key, record.value)
    number = _NUMBERS[type(record.key)]
    key = write_key(number, _to_fields(record.key), OFFSETS_TOPIC)
    if record.value is None:
        return key, None
    return key, write_value(_version(record.value), _to_fields(record.value), OFFSETS_TOPIC[number][1])


def decode(key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """Return the record in these bytes, written by Kafka or sparklog; None for a kind that is skipped.

    Raises CorruptRecord if the bytes do not match their kind and version.
    """
    if key is None:
        raise CorruptRecord("a record of the offsets topic has no key")
    try:
        if found := _decode_offset(key, value):
            return found
        number, fields = read_key(key, OFFSETS_TOPIC)
        if fields is None or number not in _KINDS:
            return None
        key_class, value_class = _KINDS[number]
        found_key: Any = _from_fields(key_class, fields)
        if value is None:
            return CoordinatorRecord(found_key)
        _, fields = read_value(value, OFFSETS_TOPIC[number][1])
        return CoordinatorRecord(found_key, _from_fields(value_class, fields))
    except (ValueError, struct.error) as error:
        raise CorruptRecord(f"a record of the offsets topic cannot be read: {error}") from error


def _encode_offset(key: OffsetKey, value: Value | None) -> tuple[bytes, bytes | None]:
    key_bytes = commit_codec.write_key(key.group_id, key.topic, key.partition)
    if not isinstance(value, OffsetValue):
        return key_bytes, None
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return key_bytes, write_value(_version(value), _to_fields(value), OFFSETS_TOPIC[_NUMBERS[OffsetKey]][1])
    return key_bytes, commit_codec.write_value(
        (value.offset, value.leader_epoch, value.metadata, value.commit_timestamp_ms, value.topic_id)
    )


def _decode_offset(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Decode an offset record; return None if the record is of another kind or version."""
    found_key = commit_codec.read_key(key)
    if found_key is None:
        return None
    group_id, topic, partition = found_key
    offset_key = OffsetKey(group_id=group_id, topic=topic, partition=partition)
    if value is None:
        return CoordinatorRecord(offset_key)
    found = commit_codec.read_value(value)
    if found is None:
        return None
    offset, leader_epoch, metadata, timestamp_ms, topic_id = found
    return CoordinatorRecord(
        offset_key,
        OffsetValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=timestamp_ms,
            topic_id=topic_id,
        ),
    )


def _version(value: Value) -> int:
    if isinstance(value, OffsetValue):
        return 4 if value.expire_timestamp_ms == NO_TIMESTAMP else 1
    return 3 if isinstance(value, GroupValue) else 0


_SCHEMA_NAMES: Mapping[tuple[type, str], str] = MappingProxyType(
    {
        (OffsetKey, "group_id"): "group",
        (OffsetValue, "commit_timestamp_ms"): "commitTimestamp",
        (OffsetValue, "expire_timestamp_ms"): "expireTimestamp",
        (GroupKey, "group_id"): "group",
        (MemberMetadata, "rebalance_timeout_ms"): "rebalanceTimeout",
        (MemberMetadata, "session_timeout_ms"): "sessionTimeout",
        (GroupValue, "current_state_timestamp_ms"): "currentStateTimestamp",
        (TargetEpochValue, "assignment_timestamp_ms"): "assignmentTimestamp",
        (RegexValue, "timestamp_ms"): "timestamp",
    }
)
"""Fields whose name in Kafka's schema is not the camel-case form of their own."""
_STRUCTURES: Mapping[tuple[type, str], type] = MappingProxyType(
    {
        (GroupValue, "members"): MemberMetadata,
        (ClassicMemberMetadata, "supported_protocols"): SupportedProtocol,
        (ConsumerMemberValue, "classic_member_metadata"): ClassicMemberMetadata,
        (TargetAssignmentValue, "topic_partitions"): TopicPartitions,
        (CurrentAssignmentValue, "assigned_partitions"): AssignedPartitions,
        (CurrentAssignmentValue, "partitions_pending_revocation"): AssignedPartitions,
    }
)
"""Fields that hold structures, and the class of those."""


@cache
def _names(cls: Any) -> tuple[tuple[str, str, type | None], ...]:
    """Return each field's name, its name in Kafka's schema, and the class of the structures in it."""
    return tuple(
        (name, _SCHEMA_NAMES.get((cls, name), _camel(name)), _STRUCTURES.get((cls, name)))
        for name in cls.__struct_fields__
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _to_fields(value: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, schema_name, structure in _names(value.__class__):
        content = getattr(value, name)
        if structure is not None and content is not None:
            content = _to_fields(content) if isinstance(content, structure) else [_to_fields(item) for item in content]
        elif isinstance(content, tuple):
            content = list(content)
        fields[schema_name] = content
    return fields


def _from_fields(cls: Any, fields: dict[str, Any]) -> Any:
    """Build a value from the fields of a structure; missing fields have their defaults."""
    values: dict[str, Any] = {}
    for name, schema_name, structure in _names(cls):
        if schema_name not in fields:
            continue
        content = fields[schema_name]
        if isinstance(content, dict):
            content = _from_fields(structure, content)
        elif isinstance(content, list):
            content = tuple(_from_fields(structure, item) for item in content) if structure else tuple(content)
        values[name] = content
    return cls(**values)
