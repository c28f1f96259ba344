"""A member of a group of the new protocol: what it has said of itself, and what it has.

The first part is in its ConsumerMember record, the second in its Current record; neither knows of the other, so each
is replayed into the member by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from sparklog.group.assignors import Partitions
from sparklog.group.records import (
    AssignedPartitions,
    ClassicMemberMetadata,
    ConsumerMemberValue,
    CurrentValue,
    TargetValue,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

IdPartition = tuple[UUID, int]
"""A partition by its topic's id: a topic that is created again is another one."""
Assigned = Mapping[IdPartition, int]
"""Partitions, with the epoch in which the member got each."""


class MemberState(IntEnum):
    """How far a member has come with its target; the numbers are those in its Current record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions first."""
    UNRELEASED_PARTITIONS = 2
    """Partitions that it is to get are still with others."""
    UNKNOWN = 127
    """Whatever a later version of Kafka has written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member as it is at one moment."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """What it said in its JoinGroup, where it speaks the classic protocol."""

    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict)
    revoking: Assigned = field(default_factory=dict)
    """What it has to give up, and has not yet said that it did."""

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def to_member_value(self) -> ConsumerMemberValue:
        return ConsumerMemberValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.subscribed_topic_names),
            subscribed_topic_regex=self.subscribed_topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=self.classic,
        )

    def to_current_value(self) -> CurrentValue:
        return CurrentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned_partitions=_write_assigned(self.assigned),
            partitions_pending_revocation=_write_assigned(self.revoking),
        )

    def with_member_value(self, value: ConsumerMemberValue) -> ConsumerMember:
        return dataclasses.replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_current_value(self, value: CurrentValue) -> ConsumerMember:
        known = value.state in MemberState.__members__.values()
        return dataclasses.replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_read_assigned(value.assigned_partitions, value.member_epoch),
            revoking=_read_assigned(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_current_value(self) -> ConsumerMember:
        """What is left after the Current record's tombstone."""
        return dataclasses.replace(
            self,
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            state=MemberState.STABLE,
            assigned={},
            revoking={},
        )


def to_target_value(partitions: Partitions) -> TargetValue:
    return TargetValue(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions[topic_id]))
            for topic_id in sorted(partitions)
        ]
    )


def from_target_value(value: TargetValue) -> Partitions:
    return {item.topic_id: frozenset(item.partitions) for item in value.topic_partitions}


def flatten(partitions: Partitions) -> set[IdPartition]:
    return {(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers}


def group_by_topic(partitions: Iterable[IdPartition]) -> dict[UUID, list[int]]:
    """Topics and their partitions, both in their order."""
    found: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        found.setdefault(topic_id, []).append(partition)
    return found


def _write_assigned(assigned: Assigned) -> list[AssignedPartitions]:
    return [
        AssignedPartitions(
            topic_id=topic_id,
            partitions=numbers,
            assignment_epochs=[assigned[topic_id, number] for number in numbers],
        )
        for topic_id, numbers in group_by_topic(assigned).items()
    ]


def _read_assigned(written: Sequence[AssignedPartitions], member_epoch: int) -> dict[IdPartition, int]:
    """Records of Kafka before 4.2 have no epochs for partitions: the member's own is the safe one."""
    found: dict[IdPartition, int] = {}
    for item in written:
        epochs = item.assignment_epochs or [member_epoch] * len(item.partitions)
        found.update(
            ((item.topic_id, partition), epoch) for partition, epoch in zip(item.partitions, epochs, strict=False)
        )
    return found
