"""Groups of the new protocol among the groups of one shard: which group a request is for, and what its end means.

A group comes into being with its first member. A classic group without members gives way to it; one with members
becomes it, where that is allowed (`migration.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping, Sequence
from uuid import UUID

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import GroupIdNotFound, InvalidGroupId
from sparklog.base.ids import encode_id
from sparklog.group.consumer_edit import GroupEdit
from sparklog.group.consumer_group import ConsumerGroup, ConsumerKey
from sparklog.group.consumer_heartbeat import ConsumerHeartbeats, RevocationTimer, SessionTimer
from sparklog.group.consumer_member import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember, MemberState, flatten
from sparklog.group.group import Group, TopicsView
from sparklog.group.records import ConsumerGroupKey, CoordinatorRecord
from sparklog.group.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from sparklog.runtime.machine import Draft

Work = Draft[CoordinatorRecord]
ConsumerTimer = SessionTimer | RevocationTimer
logger = logging.getLogger(__name__)


class ConsumerGroups:
    """Requests are refused by raising a KafkaError, before anything has changed."""

    def __init__(
        self,
        groups: MutableMapping[str, Group],
        topics: TopicsView,
        config: BrokerConfig,
        new_id: Callable[[], UUID],
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._config = config
        self.heartbeats = ConsumerHeartbeats(config, topics, lambda: encode_id(new_id()))

    # Requests

    def heartbeat(self, request: ConsumerGroupHeartbeat, now_ms: int, work: Work) -> ConsumerGroupHeartbeatResponse:
        self.heartbeats.check(request)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self.heartbeats.leave(GroupEdit(self.get(request.group_id), work), request)
        group = self.find(request.group_id)
        if group is None and request.member_epoch == 0:
            group = self._create(request.group_id, work)
        if group is None:
            raise GroupIdNotFound(f"Group {request.group_id} is not a consumer group.")
        return self.heartbeats.heartbeat(GroupEdit(group, work), request, now_ms)

    def describe(self, request: ConsumerGroupDescribe) -> ConsumerGroupDescribeResponse:
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
            assignment=self.heartbeats.names_of(member.assigned),
            target_assignment=self.heartbeats.names_of(flatten(group.target.get(member.member_id, {}))),
            is_classic=member.classic is not None,
        )

    # Groups

    def find(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def get(self, group_id: str) -> ConsumerGroup:
        """Raises GroupIdNotFound."""
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        group = self.find(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return group

    def _create(self, group_id: str, work: Work) -> ConsumerGroup | None:
        """A new group, in the place of a classic one without members; None: there is a classic one with members."""
        classic = self._groups.get(group_id)
        if classic is not None:
            if not classic.is_empty:
                return None
            work.records += classic.tombstones()
        return ConsumerGroup(group_id, self._topics)

    # The log and the timers

    def replay(self, record: CoordinatorRecord) -> None:
        """Take up a record; a tombstone of what is not there has been compacted away half, and says nothing."""
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

    def loaded(self, work: Work) -> None:
        """All groups have been read from the log: from now on their members must be heard of."""
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self._watch(group, member, work)

    def _watch(self, group: ConsumerGroup, member: ConsumerMember, work: Work) -> None:
        session_ms = self._config.group_consumer_session_timeout_ms
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        work.set_timer(SessionTimer(group.group_id, member.member_id), session_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            work.set_timer(RevocationTimer(group.group_id, member.member_id), member.rebalance_timeout_ms)

    def timer_fired(self, timer: ConsumerTimer, work: Work) -> None:
        group = self.find(timer.group_id)
        member = group.members.get(timer.member_id) if group else None
        if group is None or member is None:
            return
        if isinstance(timer, RevocationTimer):
            if member.state is not MemberState.UNREVOKED_PARTITIONS:
                return
            reason = f"has not given up its partitions within {member.rebalance_timeout_ms} ms"
        else:
            reason = "has not been heard of"
        logger.info("group %s: member %s is put out, it %s", group.group_id, member.member_id, reason)
        self.put_out(group, [member.member_id], work)

    def put_out(self, group: ConsumerGroup, member_ids: Sequence[str], work: Work) -> None:
        self.heartbeats.remove(GroupEdit(group, work), member_ids)
