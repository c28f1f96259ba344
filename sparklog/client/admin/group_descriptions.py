"""Results of the admin client about groups: frozen values, made from the messages of the Groups service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import to_value


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group; `state` as Kafka prints it (Stable, Empty, …), `type` is classic or consumer."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group. In classic groups, fields of the newer protocol are empty or -1."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    topic_regex: str
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...]
    member_epoch: int
    rack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group with its members; `protocol` is the assignor, `coordinator` a broker's id."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    group_epoch: int
    assignment_epoch: int
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """The committed offset of a group in a partition, and its lag."""

    partition: TopicPartition
    offset: int
    """The next offset to read; -1 if the group has committed nothing."""
    metadata: str
    leader_epoch: int
    commit_timestamp_ms: int
    """When the offset was committed; -1 if not known."""
    log_start_offset: int
    high_watermark: int
    """As `log_start_offset`, -1 if the partition no longer exists or has no leader at the moment."""
    behind_since_ms: int | None
    """Timestamp of the batch with the first record after the committed ones; None if the group is up to date, or has
    committed nothing."""

    @property
    def lag(self) -> int | None:
        """Number of offsets not yet committed; None if nothing is committed or the high watermark is not known."""
        if self.offset < 0 or self.high_watermark < 0:
            return None
        return max(self.high_watermark - max(self.offset, self.log_start_offset), 0)

    def lag_ms(self, now_ms: int) -> int | None:
        """Return for how many ms the first record after the committed ones has waited, 0 if there is none.

        None if `lag` is None.
        """
        if self.lag is None:
            return None
        return 0 if self.behind_since_ms is None else max(now_ms - self.behind_since_ms, 0)


def to_listing(found: Any) -> GroupListing:
    """Return the value of a GroupListing message."""
    return to_value(found, GroupListing)


def to_group(found: Any) -> GroupDescription:
    """Return the value of a GroupDescription message; its members are sorted."""
    return to_value(
        found,
        GroupDescription,
        members=tuple(sorted(map(_member, found.members), key=lambda member: (member.client_id, member.member_id))),
    )


def _member(found: Any) -> GroupMember:
    return to_value(
        found,
        GroupMember,
        assignment=_partitions(found.assignment),
        target_assignment=_partitions(found.target_assignment),
    )


def _partitions(messages: Any) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(item.topic, item.partition) for item in messages))
