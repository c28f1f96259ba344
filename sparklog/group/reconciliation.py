"""One step of a member towards its target: the partitions that it keeps, must give up, and gets now.

    STABLE                 if the target has a newer epoch, the member takes the next step
    UNREVOKED_PARTITIONS   the member stays at its old epoch until it no longer reports the partitions to give up
    UNRELEASED_PARTITIONS  the member is at the target's epoch, and gets partitions as other members release them

A partition is released when its member's Current record no longer lists it, neither as assigned nor as revoking. Only
then does another member get it, so two members never have the same partition. If a member does not report what it owns
(None), it has given up nothing.

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
    """The inputs of a step."""

    target_epoch: int
    target: Collection[IdPartition]
    subscribed: Collection[UUID]
    """The topics that the member is subscribed to now; it gets no partitions of others, even if the target has them."""
    is_assigned: Callable[[IdPartition], bool]
    """Whether any member has the partition, assigned or revoking."""
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
        wanted = target - kept.keys()
        # Partitions that the member itself is revoking count as free: only one member has a partition at a time.
        unreleased = {p for p in wanted if self.is_assigned(p) and p not in member.revoking and p not in given_up}
        kept.update((partition, self.target_epoch) for partition in sorted(wanted - unreleased))
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
