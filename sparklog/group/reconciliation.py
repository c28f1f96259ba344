"""One step of a member towards its target: what it may keep, must give up, and may get now.

    STABLE                 its target has a newer epoch: take the next step
    UNREVOKED_PARTITIONS   it waits at its old epoch until it no longer reports what it has to give up, then goes on
    UNRELEASED_PARTITIONS  it is at the target's epoch, and gets what others have released since

A partition is released when the Current record of the member that had it no longer has it, assigned or revoking; only
then another member gets it. So no partition is ever with two members. A member that does not say what it owns (None)
has given up nothing.

As org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from uuid import UUID

from sparklog.base.errors import FencedMemberEpoch
from sparklog.group.consumer_member import Assigned, ConsumerMember, IdPartition, MemberState


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """What a step depends on."""

    target_epoch: int
    target: Collection[IdPartition]
    subscribed: Collection[UUID]
    """The topics that the member is subscribed to now: of others it gets nothing, whatever the target says."""
    is_assigned: Callable[[IdPartition], bool]
    """Whether a member has the partition, assigned or revoking."""
    owned: Collection[IdPartition] | None
    """What the member says it owns; None: it does not say."""
    subscription_changed: bool

    def step(self, member: ConsumerMember) -> ConsumerMember:
        """The member after the step; the same where there is none. Raises FencedMemberEpoch."""
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
        wanted = target - kept.keys()
        # Its own revoking partitions are not in anybody's way: only one member has a partition at a time.
        unreleased = {p for p in wanted if self.is_assigned(p) and p not in member.revoking and p not in given_up}
        kept.update((partition, self.target_epoch) for partition in sorted(wanted - unreleased))
        state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
        return _at(member, self.target_epoch, state, kept, {})

    def _drop_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """Take away what the member is no longer subscribed to, and leave everything else as it is."""
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
