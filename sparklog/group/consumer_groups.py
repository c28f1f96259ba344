"""The consumer groups (KIP-848) of one shard: finds a request's group, and creates, upgrades or downgrades groups.

A group is created with its first member. It replaces a classic group of the same id without members. A classic group
with members is upgraded, if that is allowed (`migration.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, MutableMapping
from uuid import UUID

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import GroupIdNotFound, InvalidGroupId
from sparklog.base.ids import encode_id
from sparklog.group.classic_group import ClassicGroup
from sparklog.group.classic_members import ClassicMembers
from sparklog.group.consumer_group import ConsumerGroup, ConsumerKey, GroupEdit
from sparklog.group.consumer_heartbeat import (
    AssignTimer,
    ConsumerHeartbeats,
    MemberTimer,
    RejoinTimer,
    RevocationTimer,
    SessionTimer,
    SyncTimer,
)
from sparklog.group.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    flatten,
)
from sparklog.group.group import Group, TopicsImage, Work
from sparklog.group.migration import can_downgrade, check_upgrade, downgrade, upgrade
from sparklog.group.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumer,
    DescribedConsumerGroup,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    SyncGroup,
    SyncGroupResponse,
)
from sparklog.group.topic_pattern import TopicMatches
from sparklog.offsets_topic.records import ConsumerGroupKey, CoordinatorRecord

ConsumerTimer = MemberTimer | AssignTimer
_FAILURES: dict[type[MemberTimer], str] = {
    SessionTimer: "has not been heard of",
    RevocationTimer: "has not given up its partitions in time",
    RejoinTimer: "has not joined again in time",
    SyncTimer: "has not asked for its assignment in time",
}
logger = logging.getLogger(__name__)


class ConsumerGroups:
    """The consumer groups of one shard. A refused request raises a KafkaError before anything has changed.

    Methods for requests return the answer, and write the records and timers to `work`.
    """

    def __init__(
        self,
        groups: MutableMapping[str, Group],
        topics: TopicsImage,
        config: BrokerConfig,
        new_id: Callable[[], UUID],
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._config = config
        self.heartbeats = ConsumerHeartbeats(config, topics, lambda: encode_id(new_id()))
        self._classic = ClassicMembers(self.heartbeats, config, new_id)

    # Requests

    def to_match(self, group_id: str, text: str | None) -> list[str]:
        """Return the regular expressions to match before a request with the expression `text` is decided."""
        group, version = self.find(group_id), self._topics.version
        texts = {text} if text else set()
        if group is None:
            return sorted(texts)
        if group.compared_with != version:
            texts.update(group.regex_counts())
        return sorted(each for each in texts if group.matched_with.get(each) != version)

    def heartbeat(
        self, request: ConsumerGroupHeartbeat, now_ms: int, matches: TopicMatches, work: Work
    ) -> ConsumerGroupHeartbeatResponse:
        """Decide the heartbeat of a member that joins, stays or leaves. A group is created with its first member."""
        self.heartbeats.check(request)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            group = self.get(request.group_id)
            member = self.heartbeats.leaving_member(group, request)
            if request.member_epoch == LEAVE_STATIC_EPOCH:
                self.heartbeats.go_away(GroupEdit(group, work), member)
            else:
                self.remove(group, [member.member_id], now_ms, work)
            return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
        if request.member_epoch == JOIN_EPOCH:
            edit = self._edit_or_create(request.group_id, work)
        else:
            edit = GroupEdit(self.get(request.group_id), work)
        return self.heartbeats.heartbeat(edit, request, now_ms, matches)

    def join(
        self, group: ConsumerGroup, request: JoinGroup, now_ms: int, matches: TopicMatches, work: Work
    ) -> JoinGroupResponse:
        """Decide a classic member's JoinGroup, which may downgrade the group to a classic one."""
        edit = GroupEdit(group, work)
        response = self._classic.join(edit, request, now_ms, matches)
        if response.error is None and can_downgrade(edit.group, (), self._config):
            downgrade(edit.group, (), self.heartbeats, now_ms, work)
        return response

    def sync(self, group: ConsumerGroup, request: SyncGroup, now_ms: int, work: Work) -> SyncGroupResponse:
        """Decide a classic member's SyncGroup."""
        return self._classic.sync(group, request, now_ms, work)

    def classic_heartbeat(self, group: ConsumerGroup, request: Heartbeat, now_ms: int, work: Work) -> HeartbeatResponse:
        """Decide a classic member's Heartbeat."""
        return self._classic.heartbeat(group, request, now_ms, work)

    def leave(self, group: ConsumerGroup, request: LeaveGroup, now_ms: int, work: Work) -> LeaveGroupResponse:
        """Decide the LeaveGroup of classic members; each has an error of its own in the answer."""
        left, leaving = self._classic.find_leaving(group, request)
        if leaving:
            self.remove(group, leaving, now_ms, work)
        return LeaveGroupResponse(members=left)

    def describe(self, request: ConsumerGroupDescribe) -> ConsumerGroupDescribeResponse:
        """Return descriptions of the groups; a group that cannot be described has an error."""
        return ConsumerGroupDescribeResponse(groups=[self._describe(group_id) for group_id in request.group_ids])

    def _describe(self, group_id: str) -> DescribedConsumerGroup:
        group = self.find(group_id)
        if group is None:
            text = "is not a consumer group" if group_id in self._groups else "not found"
            return DescribedConsumerGroup(group_id=group_id, error=GroupIdNotFound(f"Group {group_id} {text}."))
        return DescribedConsumerGroup(
            group_id=group_id,
            state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor=group.preferred_assignor(self._config.group_consumer_assignors),
            members=[self._describe_member(group, member) for member in group.members.values()],
        )

    def _describe_member(self, group: ConsumerGroup, member: ConsumerMember) -> DescribedConsumer:
        return DescribedConsumer(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex or None,
            assignment=self.heartbeats.names_of({**member.assigned, **member.revoking}),
            target_assignment=self.heartbeats.names_of(flatten(group.target.get(member.member_id, {}))),
            is_classic=member.classic is not None,
        )

    # Groups

    def find(self, group_id: str) -> ConsumerGroup | None:
        """Return the group; None if there is none, or a classic one."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def get(self, group_id: str) -> ConsumerGroup:
        """Return the group. Raises GroupIdNotFound if it is not a consumer group, InvalidGroupId if the id is empty."""
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        group = self.find(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return group

    def _edit_or_create(self, group_id: str, work: Work) -> GroupEdit:
        """Return an edit of the group that a member joins; create or upgrade the group if it does not exist."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return GroupEdit(group, work)
        edit = GroupEdit(ConsumerGroup(group_id, self._topics), work)
        if isinstance(group, ClassicGroup) and not group.is_empty:
            check_upgrade(group, self._config)
            upgrade(group, edit, self.heartbeats)
            logger.info("group %s: %d members go over to the new protocol", group_id, len(group.members))
        elif group is not None:
            work.write(*group.tombstones())
        return edit

    # The log and the timers

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record. A tombstone for a missing group is ignored: compaction has removed the records before it."""
        key = record.key
        assert isinstance(key, ConsumerKey)
        group = self.find(key.group_id)
        if group is None:
            if record.value is None:
                return
            group = ConsumerGroup(key.group_id, self._topics)
            self._groups[key.group_id] = group
        if record.value is None and isinstance(key, ConsumerGroupKey):
            del self._groups[key.group_id]
        else:
            group.replay(record)

    def loaded(self, group: ConsumerGroup, work: Work) -> None:
        """Start the sessions of a group's members, after the whole log is replayed."""
        group.matched_with.clear()  # the versions in the log are those of another broker's metadata
        for member in group.members.values():
            self._start_timers(group, member, work)

    def _start_timers(self, group: ConsumerGroup, member: ConsumerMember, work: Work) -> None:
        session_ms = self._config.group_consumer_session_timeout_ms
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        work.set_timer(SessionTimer(group.group_id, member.member_id), session_ms)
        if member.revoking and member.classic is None:
            work.set_timer(RevocationTimer(group.group_id, member.member_id), member.rebalance_timeout_ms)

    def timer_fired(self, timer: ConsumerTimer, now_ms: int, work: Work) -> None:
        """Handle a timer of a group or a member; do nothing if it is gone."""
        group = self.find(timer.group_id)
        if group is None:
            return
        if isinstance(timer, AssignTimer):
            self.heartbeats.update_target(GroupEdit(group, work), now_ms)
        elif member := group.members.get(timer.member_id):
            self._remove_late(group, member, timer, now_ms, work)

    def _remove_late(
        self, group: ConsumerGroup, member: ConsumerMember, timer: MemberTimer, now_ms: int, work: Work
    ) -> None:
        if isinstance(timer, RevocationTimer) and not member.revoking:
            return
        logger.info("group %s: member %s is put out, it %s", group.group_id, member.member_id, _FAILURES[type(timer)])
        self.remove(group, [member.member_id], now_ms, work)

    def remove(self, group: ConsumerGroup, member_ids: Collection[str], now_ms: int, work: Work) -> None:
        """Remove members. If only classic members are left, downgrade the group, if that is allowed."""
        if can_downgrade(group, member_ids, self._config):
            downgrade(group, member_ids, self.heartbeats, now_ms, work)
            logger.info("group %s: goes back to the classic protocol", group.group_id)
        else:
            self.heartbeats.remove(GroupEdit(group, work), member_ids)
