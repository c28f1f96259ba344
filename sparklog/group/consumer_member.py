"""A member of a consumer group (KIP-848): its description and its partitions.

The member's ConsumerMember record has the description, its Current record the partitions. The records are independent:
each is replayed into the member separately.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from uuid import UUID

from msgspec import Struct, field, structs
from msgspec.structs import replace

from sparklog.base.errors import FencedMemberEpoch
from sparklog.group.assignors import Partitions
from sparklog.offsets_topic.records import (
    AssignedPartitions,
    ClassicMemberMetadata,
    ConsumerMemberValue,
    CurrentAssignmentValue,
    TargetAssignmentValue,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

IdPartition = tuple[UUID, int]
"""A partition by its topic's id: a recreated topic is a different topic."""
Assigned = Mapping[IdPartition, int]
"""Partitions, each with the member epoch of its assignment."""


class MemberState(IntEnum):
    """The state of a member's reconciliation with its target; numbered as in the Current record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has to give up partitions first."""
    UNRELEASED_PARTITIONS = 2
    """Other members still have partitions that the member is to get."""
    UNKNOWN = 127
    """Another number, which a later version of Kafka has written."""


class ConsumerMember(Struct, frozen=True, kw_only=True):
    """The state of a member at one moment."""

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
    """Data of its JoinGroup, if the member uses the classic protocol."""

    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict)
    revoking: Assigned = field(default_factory=dict)
    """Partitions that the member has to give up and has not yet reported as given up."""

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Return whether the member has exactly the partitions of this epoch's target."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def to_member_value(self) -> ConsumerMemberValue:
        """Return the ConsumerMember record's value, with the subscription sorted."""
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

    def to_current_value(self) -> CurrentAssignmentValue:
        """Return the Current record's value."""
        return CurrentAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned_partitions=_write_assigned(self.assigned),
            partitions_pending_revocation=_write_assigned(self.revoking),
        )

    def with_member_value(self, value: ConsumerMemberValue) -> ConsumerMember:
        """Return the member with the description of a ConsumerMember record."""
        return structs.replace(
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

    def with_current_value(self, value: CurrentAssignmentValue) -> ConsumerMember:
        """Return the member with the partitions and state of a Current record; unknown states become UNKNOWN."""
        known = value.state in MemberState.__members__.values()
        return structs.replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_read_assigned(value.assigned_partitions, value.member_epoch),
            revoking=_read_assigned(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_current_value(self) -> ConsumerMember:
        """Return the member after a tombstone of its Current record."""
        return structs.replace(
            self,
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            state=MemberState.STABLE,
            assigned={},
            revoking={},
        )


def to_target_value(partitions: Partitions) -> TargetAssignmentValue:
    """Return the value of a Target record, sorted."""
    return TargetAssignmentValue(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions[topic_id]))
            for topic_id in sorted(partitions)
        ]
    )


def from_target_value(value: TargetAssignmentValue) -> Partitions:
    """Return the partitions in a Target record, by topic id."""
    return {item.topic_id: frozenset(item.partitions) for item in value.topic_partitions}


def flatten(partitions: Partitions) -> set[IdPartition]:
    """Return the partitions as pairs of topic id and number."""
    return {(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers}


def group_by_topic(partitions: Iterable[IdPartition]) -> dict[UUID, list[int]]:
    """Return the partitions' numbers by topic id, both sorted."""
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
    """Return the assigned partitions. Kafka before 4.2 wrote no epochs for them: then they have the member's."""
    found: dict[IdPartition, int] = {}
    for item in written:
        epochs = item.assignment_epochs or [member_epoch] * len(item.partitions)
        found.update(
            ((item.topic_id, partition), epoch) for partition, epoch in zip(item.partitions, epochs, strict=False)
        )
    return found


class Reconciliation(Struct, frozen=True, kw_only=True):
    """One step of a member towards its target: the partitions that it keeps, has to give up, and gets now.

        STABLE                 if the target has a newer epoch, the member takes the next step
        UNREVOKED_PARTITIONS   the member stays at its old epoch until it no longer reports the partitions to give up
        UNRELEASED_PARTITIONS  the member is at the target's epoch, and gets partitions as other members release them

    A partition is released when its member's Current record no longer lists it, neither as assigned nor as revoking.
    Another member gets it only then, so two members never have the same partition. A member that does not report its
    owned partitions (None) has given up none.

    As org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder.
    """

    target_epoch: int
    target: Collection[IdPartition]
    subscribed: Collection[UUID]
    """The member's subscribed topics: it gets no partitions of other topics, even if the target has them."""
    is_assigned: Callable[[IdPartition], bool]
    """Returns whether any member has the partition, assigned or revoking."""
    owned: Collection[IdPartition] | None
    """Partitions that the member reports as owned; None: not reported."""
    subscription_changed: bool

    def step(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member after the step, or the same member if there is no step. Raises FencedMemberEpoch."""
        if member.state is MemberState.STABLE and member.member_epoch == self.target_epoch:
            return self._drop_unsubscribed(member) if self.subscription_changed else member
        if member.state is MemberState.UNREVOKED_PARTITIONS and self._still_owns(member.revoking):
            return self._drop_unsubscribed(member) if self.subscription_changed else member
        if member.state is MemberState.UNKNOWN:
            if self.owned is None or self.owned:
                raise FencedMemberEpoch("the member is in a state that is not known: it must give up all and rejoin")
            return self._next(replace(member, member_epoch=self.target_epoch))
        return self._next(member)

    def _next(self, member: ConsumerMember) -> ConsumerMember:
        target = {partition for partition in self.target if partition[0] in self.subscribed}
        kept = {partition: epoch for partition, epoch in member.assigned.items() if partition in target}
        given_up = {partition: epoch for partition, epoch in member.assigned.items() if partition not in target}
        if given_up and self._still_owns(given_up):
            return _at(member, member.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, given_up)
        missing = target - kept.keys()
        # Partitions that the member itself is revoking count as free: only one member has a partition at a time.
        unreleased = {p for p in missing if self.is_assigned(p) and p not in member.revoking and p not in given_up}
        kept.update((partition, self.target_epoch) for partition in sorted(missing - unreleased))
        state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
        return _at(member, self.target_epoch, state, kept, {})

    def _drop_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """Remove partitions of topics that the member is no longer subscribed to; keep all others."""
        dropped = {p: epoch for p, epoch in member.assigned.items() if p[0] not in self.subscribed}
        if not dropped:
            return member
        kept = {p: epoch for p, epoch in member.assigned.items() if p not in dropped}
        revoking = {**member.revoking, **dropped}
        if self._still_owns(revoking):
            return _at(member, member.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
        return _at(member, member.member_epoch, member.state, kept, member.revoking)

    def _still_owns(self, partitions: Assigned) -> bool:
        return self.owned is None or any(partition in partitions for partition in self.owned)


def _at(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Assigned, revoking: Assigned
) -> ConsumerMember:
    return replace(
        member,
        previous_member_epoch=member.member_epoch,
        member_epoch=epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
