"""The two phases of a classic group's rebalance, and the removal of members.

classic_groups.py checks the requests; this module changes the groups.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import FencedInstanceId, KafkaError, RebalanceInProgress, UnknownMemberId
from sparklog.group.classic_group import ClassicGroup, ClassicMember
from sparklog.group.group import Work
from sparklog.group.requests import JoinedMember, JoinGroupResponse, SyncGroupResponse
from sparklog.group.states import AWAITING_SYNC, EMPTY, PREPARING_REBALANCE, STABLE, GroupEvent

SESSION, JOIN, SYNC = "session", "join", "sync"
logger = logging.getLogger(__name__)


class ClassicTimer(NamedTuple):
    """Key of a timer: SESSION for one member, JOIN or SYNC for a group."""

    what: str
    group_id: str
    member_id: str = ""


class RebalancePhases:
    """Moves groups through the phases of a rebalance."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    # Rebalancing

    def rebalance(self, group: ClassicGroup, reason: str, now_ms: int, work: Work) -> None:
        """Start a rebalance, for which every member has to join again."""
        logger.info("group %s, generation %d: rebalance, as %s", group.group_id, group.generation, reason)
        if group.state is AWAITING_SYNC:
            self.refuse_syncs(group, RebalanceInProgress(f"group {group.group_id!r} is being rebalanced"), work)
        work.cancel_timer(ClassicTimer(SYNC, group.group_id))
        is_first = group.state is EMPTY
        group.move(GroupEvent.REBALANCE_STARTED, now_ms)
        if is_first:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            group.begin_initial_delay(delay_ms)
            work.set_timer(ClassicTimer(JOIN, group.group_id), delay_ms)
        elif group.has_all_joined:
            self._complete_join(group, now_ms, work)
        else:
            work.set_timer(ClassicTimer(JOIN, group.group_id), group.rebalance_timeout_ms)

    def rebalance_or_complete(self, group: ClassicGroup, reason: str, now_ms: int, work: Work) -> None:
        """Start a rebalance; if one has begun, end its join phase once all members have joined."""
        if group.state is PREPARING_REBALANCE:
            self.complete_if_all_joined(group, now_ms, work)
        else:
            self.rebalance(group, reason, now_ms, work)

    def membership_changed(self, group: ClassicGroup, reason: str, now_ms: int, work: Work) -> None:
        """As `rebalance_or_complete`, after members have left; an empty group stays empty."""
        if group.state in (AWAITING_SYNC, STABLE):
            self.rebalance(group, reason, now_ms, work)
        elif group.state is PREPARING_REBALANCE:
            self.complete_if_all_joined(group, now_ms, work)

    def complete_if_all_joined(self, group: ClassicGroup, now_ms: int, work: Work) -> None:
        """End the join phase if all members have joined and there is no initial delay."""
        if group.initial_delay_ms is None and group.has_all_joined:
            self._complete_join(group, now_ms, work)

    def join_timer_fired(self, group: ClassicGroup, now_ms: int, work: Work) -> None:
        """End the join phase without the missing members; extend the initial delay if members have joined meanwhile."""
        if group.state is not PREPARING_REBALANCE:
            return
        delay_ms = group.extend_initial_delay(self._config.group_initial_rebalance_delay_ms)
        if delay_ms is not None:
            work.set_timer(ClassicTimer(JOIN, group.group_id), delay_ms)
            return
        self._complete_join(group, now_ms, work)

    def _complete_join(self, group: ClassicGroup, now_ms: int, work: Work) -> None:
        for member in [each for each in group.members.values() if each.join_ticket is None and not each.is_static]:
            self.remove(group, member.member_id, work)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none has joined: wait until one joins or its session ends.
            work.set_timer(ClassicTimer(JOIN, group.group_id), group.rebalance_timeout_ms)
            return
        work.cancel_timer(ClassicTimer(JOIN, group.group_id))
        group.end_initial_delay()
        group.begin_generation(now_ms)
        logger.info("group %s, generation %d: %d members", group.group_id, group.generation, len(group.members))
        if not group.members:
            work.write(group.snapshot())
            return
        for member in group.members.values():
            if (ticket := member.take_join_ticket()) is not None:
                work.reply(ticket, join_response(group, member))
            member.has_joined()
            self.restart_session(group, member, work)
            group.pending_syncs.add(member.member_id)
        work.set_timer(ClassicTimer(SYNC, group.group_id), group.rebalance_timeout_ms)

    # Syncing

    def received_sync(self, group: ClassicGroup, member_id: str, work: Work) -> None:
        """Record that a member has synced; after the last one, cancel the timer."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            work.cancel_timer(ClassicTimer(SYNC, group.group_id))

    def sync_timer_fired(self, group: ClassicGroup, now_ms: int, work: Work) -> None:
        """Remove the members that have not synced, and start a rebalance."""
        if group.state in (AWAITING_SYNC, STABLE) and group.pending_syncs:
            late = sorted(group.pending_syncs)
            for member_id in late:
                self.remove(group, member_id, work)
            self.rebalance(group, f"members did not sync: {', '.join(late)}", now_ms, work)

    def refuse_syncs(self, group: ClassicGroup, error: KafkaError, work: Work) -> None:
        """Answer all waiting SyncGroups with an error, and drop all members' assignments."""
        for member in group.members.values():
            member.clear_assignment()
            if (ticket := member.take_sync_ticket()) is not None:
                work.reply(ticket, SyncGroupResponse(error=error))
                self.restart_session(group, member, work)

    def send_assignments(self, group: ClassicGroup, work: Work) -> None:
        """Answer all waiting SyncGroups with the members' assignments."""
        for member in group.members.values():
            if (ticket := member.take_sync_ticket()) is not None:
                work.reply(ticket, sync_response(group, member))
                self.restart_session(group, member, work)

    # Sessions and removal of members

    def restart_session(self, group: ClassicGroup, member: ClassicMember, work: Work) -> None:
        """Restart the timer of the member's session."""
        work.set_timer(ClassicTimer(SESSION, group.group_id, member.member_id), member.session_timeout_ms)

    def session_timer_fired(self, group: ClassicGroup, member_id: str, now_ms: int, work: Work) -> None:
        """Remove a member whose session has ended, unless it waits for the coordinator."""
        member = group.members.get(member_id)
        if member_id in group.pending_joins or (member is not None and not member.is_awaited):
            self.remove(group, member_id, work)
            self.membership_changed(group, f"member {member_id} has not been heard of", now_ms, work)

    def remove(self, group: ClassicGroup, member_id: str, work: Work) -> None:
        """Remove a member or a pending join, and refuse its waiting requests. Starts no rebalance."""
        work.cancel_timer(ClassicTimer(SESSION, group.group_id, member_id))
        member = group.remove(member_id)
        if member is None:
            return
        error = UnknownMemberId(f"member {member_id!r} is no longer in the group")
        if (ticket := member.take_join_ticket()) is not None:
            work.reply(ticket, JoinGroupResponse(error=error, member_id=member_id))
        if (ticket := member.take_sync_ticket()) is not None:
            work.reply(ticket, SyncGroupResponse(error=error))

    def fence(self, member: ClassicMember, instance_id: str, work: Work) -> None:
        """Refuse the waiting requests of a member whose instance id has joined under another member id."""
        error = FencedInstanceId(f"{instance_id!r} has joined again, under another member id")
        if (ticket := member.take_join_ticket()) is not None:
            work.reply(ticket, JoinGroupResponse(error=error, member_id=member.member_id))
        if (ticket := member.take_sync_ticket()) is not None:
            work.reply(ticket, SyncGroupResponse(error=error))


def join_response(
    group: ClassicGroup,
    member: ClassicMember,
    *,
    leader: str | None = None,
    skip_assignment: bool = False,
    with_members: bool = True,
) -> JoinGroupResponse:
    """Return the answer to a member's join; the leader's contains all members' metadata."""
    members = [
        JoinedMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            metadata=each.metadata_for(group.protocol),
        )
        for each in (group.members.values() if with_members and group.leader == member.member_id else ())
    ]
    return JoinGroupResponse(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=(group.leader or "") if leader is None else leader,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def sync_response(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    """Return the answer to a member's sync, with its present assignment."""
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment)
