"""The groups of one partition of `__consumer_offsets`: a state machine (runtime/state_machine.py).

The shard holds groups of both protocols and their offsets. It passes each request and each record to the part that
handles it. The first offset of a simple consumer creates its group.

A refused request raises a KafkaError before anything has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import GroupIdNotFound, InvalidGroupId, KafkaError, NonEmptyGroup
from sparklog.group.classic_group import CONSUMER_PROTOCOL, ClassicGroup
from sparklog.group.classic_groups import ClassicGroups, GroupAssignment, GroupCreation, StaticMemberReplacement
from sparklog.group.consumer_group import ConsumerGroup
from sparklog.group.consumer_groups import ConsumerGroups, ConsumerTimer
from sparklog.group.group import Group, TopicsImage, Work
from sparklog.group.migration import GroupDowngrade
from sparklog.group.offsets import CommittedOffsets
from sparklog.group.rebalance import ClassicTimer
from sparklog.group.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DeleteGroups,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    DescribeGroupsResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    SyncGroup,
    SyncGroupResponse,
    TxnOffsetCommit,
)
from sparklog.group.states import EMPTY, STABLE
from sparklog.group.topic_pattern import UNMATCHED, TopicMatches
from sparklog.offsets_topic.records import CoordinatorRecord, GroupKey, OffsetKey
from sparklog.runtime.state_machine import Decision, ProducerIdAndEpoch


class GroupShard:
    """The groups and the offsets of one partition. Methods for requests return a decision or a response.

    Implements coordinator.runtime.CoordinatorShard.
    """

    def __init__(self, config: BrokerConfig, topics: TopicsImage, new_id: Callable[[], UUID]) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets(config, topics)
        self.classic = ClassicGroups(self.groups, config, new_id)
        self.consumers = ConsumerGroups(self.groups, topics, config, new_id)

    # Requests

    def to_match(self, group_id: str, text: str | None = None) -> Sequence[str]:
        """Return the regular expressions to match before a request with the expression `text` is decided."""
        return self.consumers.to_match(group_id, text)

    def join(
        self, request: JoinGroup, ticket: Hashable, now_ms: int, matches: TopicMatches = UNMATCHED
    ) -> Decision[CoordinatorRecord, JoinGroupResponse]:
        """Decide JoinGroup, which may wait under `ticket`. matches: of the group's regular expressions"""
        work = Work()
        self.classic.check_join(request)
        if group := self.consumers.find(request.group_id):
            if not group.is_empty:
                return work.decide(self.consumers.join(group, request, now_ms, matches, work))
            work.write(*group.tombstones())  # a classic group replaces it
        return work.decide(self.classic.join(request, ticket, now_ms, work))

    def sync(self, request: SyncGroup, ticket: Hashable, now_ms: int) -> Decision[CoordinatorRecord, SyncGroupResponse]:
        """Decide SyncGroup, which may wait under `ticket`."""
        work = Work()
        if group := self.consumers.find(request.group_id):
            return work.decide(self.consumers.sync(group, request, now_ms, work))
        return work.decide(self.classic.sync(request, ticket, work))

    def heartbeat(self, request: Heartbeat, now_ms: int) -> Decision[CoordinatorRecord, HeartbeatResponse]:
        """Decide the Heartbeat of a classic member."""
        work = Work()
        if group := self.consumers.find(request.group_id):
            return work.decide(self.consumers.classic_heartbeat(group, request, now_ms, work))
        return work.decide(self.classic.heartbeat(request, work))

    def leave(self, request: LeaveGroup, now_ms: int) -> Decision[CoordinatorRecord, LeaveGroupResponse]:
        """Decide LeaveGroup."""
        work = Work()
        if group := self.consumers.find(request.group_id):
            return work.decide(self.consumers.leave(group, request, now_ms, work))
        return work.decide(self.classic.leave(request, now_ms, work))

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeat, now_ms: int, matches: TopicMatches = UNMATCHED
    ) -> Decision[CoordinatorRecord, ConsumerGroupHeartbeatResponse]:
        """Decide ConsumerGroupHeartbeat. matches: of the regular expressions of the group and of the request"""
        work = Work()
        return work.decide(self.consumers.heartbeat(request, now_ms, matches, work))

    def commit(self, request: OffsetCommit, now_ms: int) -> Decision[CoordinatorRecord, OffsetCommitResponse]:
        """Decide OffsetCommit; a commit of a classic group's member counts as a heartbeat."""
        work = Work()
        group = self.groups.get(request.group_id)
        response = self.offsets.commit(request, group, now_ms, work)
        if isinstance(group, ClassicGroup):
            self.classic.committed_by(group, request.member_id, work)
        return work.decide(response)

    def commit_in_transaction(
        self, request: TxnOffsetCommit, now_ms: int
    ) -> Decision[CoordinatorRecord, OffsetCommitResponse]:
        """Decide TxnOffsetCommit: the offsets take effect with the producer's transaction (`end_transaction`).

        Raises KafkaError: CoordinatorNotAvailable if too many offsets are pending, and as `check_commit` of the group.
        """
        work = Work()
        response = self.offsets.commit(request, self.groups.get(request.group_id), now_ms, work)
        return replace(work.decide(response), producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch))

    def fetch_offsets(self, request: OffsetFetch) -> OffsetFetchResponse:
        """Return the committed offsets; a group that does not exist has none."""
        if group := self.groups.get(request.group_id):
            group.check_fetch(request)
        return self.offsets.fetch(request)

    def delete_offsets(self, request: OffsetDelete) -> Decision[CoordinatorRecord, OffsetDeleteResponse]:
        """Decide OffsetDelete: offsets of partitions that no member subscribes to are deleted.

        Raises InvalidGroupId, GroupIdNotFound, or NonEmptyGroup if the members' subscriptions cannot be read.
        """
        work = Work()
        group = self._get(request.group_id)
        if isinstance(group, ClassicGroup) and group.state is not EMPTY and group.protocol_type != CONSUMER_PROTOCOL:
            raise NonEmptyGroup(f"group {group.group_id!r} has members, and their subscriptions cannot be read")
        return work.decide(self.offsets.delete(request, group, work))

    def delete(self, request: DeleteGroups) -> Decision[CoordinatorRecord, DeleteGroupsResponse]:
        """Decide DeleteGroups. The response has the groups that are deleted or refused; call again for the others.

        A group with many offsets takes several calls.
        """
        work = Work()
        errors: dict[str, KafkaError | None] = {}
        for group_id in request.group_ids:
            try:
                group = self._get(group_id)
                group.check_delete()
            except KafkaError as error:
                errors[group_id] = error
            else:
                if self.offsets.delete_some(group_id, work):
                    work.write(*group.tombstones())
                    errors[group_id] = None
        return work.decide(DeleteGroupsResponse(errors=errors))

    def list(self, request: ListGroups, among: Sequence[Group] | None = None) -> ListGroupsResponse:
        """Return the groups, or those of `among`, with the states and types of the request; empty filters match all.

        Names of states and types are compared without regard to case.
        """
        states = {name.lower() for name in request.states}
        types = {name.lower() for name in request.types}
        listed = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                state=group.state_name,
                type=group.group_type,
            )
            for group in (self.groups.values() if among is None else among)
            if (not states or group.state_name.lower() in states) and (not types or group.group_type in types)
        ]
        return ListGroupsResponse(groups=listed)

    def describe(self, request: DescribeGroups) -> DescribeGroupsResponse:
        """Answer DescribeGroups; each group has its own error."""
        return DescribeGroupsResponse(groups=[self._describe(group_id) for group_id in request.group_ids])

    def _describe(self, group_id: str) -> DescribedGroup:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return _describe_classic(group)
        text = "is not a classic group" if group else "not found"
        return DescribedGroup(group_id=group_id, error=GroupIdNotFound(f"Group {group_id} {text}."))

    def consumer_describe(self, request: ConsumerGroupDescribe) -> ConsumerGroupDescribeResponse:
        """Answer ConsumerGroupDescribe; each group has its own error."""
        return self.consumers.describe(request)

    # The cluster, the clock, the log

    def delete_topics(
        self, ids: Mapping[str, UUID], group_ids: Iterable[str] | None = None
    ) -> Decision[CoordinatorRecord, None]:
        """Delete offsets that all or some groups committed for deleted topics. ids: the deleted topics' ids by name"""
        work = Work()
        self.offsets.delete_topics(ids, self.groups if group_ids is None else group_ids, work)
        return work.decide()

    def expire(self, now_ms: int, group_ids: Iterable[str] | None = None) -> Decision[CoordinatorRecord, None]:
        """Delete expired offsets of all or some groups, and empty groups without other offsets."""
        work = Work()
        for group in map(self.groups.get, self.groups if group_ids is None else group_ids):
            if (
                group
                and self.offsets.expire(group, now_ms, work)
                and group.is_empty
                and group.state_name == EMPTY.value
            ):
                work.write(*group.tombstones())
        return work.decide()

    def settle(self, is_committed: Callable[[int], bool]) -> None:
        """Drop the uncommitted changes of offsets that are committed by now."""
        self.offsets.settle(is_committed)

    def replay(
        self, record: CoordinatorRecord, log_offset: int | None = None, producer: ProducerIdAndEpoch | None = None
    ) -> None:
        """Apply a record to the state.

        log_offset: of the record, if it may not be committed yet; otherwise None. producer: of the transaction that the
        record was written in; None: of no transaction.
        """
        key: Any = record.key
        value: Any = record.value
        if isinstance(key, OffsetKey):
            self.offsets.replay(key, value, log_offset, producer.producer_id if producer else None)
            if value is not None:
                self._ensure_group(key.group_id)
        elif isinstance(key, GroupKey):
            self.classic.replay(key, value)
        else:
            self.consumers.replay(record)

    def end_transaction(self, producer_id: int, *, is_commit: bool, log_offset: int | None = None) -> None:
        """Apply a transaction marker to the state: the producer's pending offsets take effect or are dropped.

        log_offset: of the marker, if it may not be committed yet; otherwise None. A marker without a transaction
        changes nothing.
        """
        for group_id in self.offsets.end_transaction(producer_id, is_commit=is_commit, log_offset=log_offset):
            self._ensure_group(group_id)

    def _ensure_group(self, group_id: str) -> None:
        """Create the group of a committed offset if there is none."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id=group_id)

    def loaded(self, now_ms: int, group_ids: Iterable[str] | None = None) -> Decision[CoordinatorRecord, None]:
        """Start the timers of all or some groups, after the whole log is replayed."""
        work = Work()
        for group in list(map(self.groups.get, self.groups if group_ids is None else group_ids)):
            if isinstance(group, ClassicGroup):
                self.classic.loaded(group, now_ms, work)
            elif isinstance(group, ConsumerGroup):
                self.consumers.loaded(group, work)
        return work.decide()

    def delete_of_others(self, group_ids: Iterable[str] | None = None) -> Decision[CoordinatorRecord, None]:
        """Delete offsets that all or some groups committed for former topics of the same names."""
        work = Work()
        self.offsets.delete_of_others(self.groups if group_ids is None else group_ids, work)
        return work.decide()

    def timer_fired(self, key: Hashable, now_ms: int) -> Decision[CoordinatorRecord, None]:
        """Handle a timer of a group."""
        work = Work()
        if isinstance(key, ClassicTimer):
            self.classic.timer_fired(key, now_ms, work)
        elif isinstance(key, ConsumerTimer):
            self.consumers.timer_fired(key, now_ms, work)
        return work.decide()

    def written(self, event: Any, error: KafkaError | None, now_ms: int) -> Decision[CoordinatorRecord, None]:
        """Handle the commit of a group's records, or the error of their write."""
        work = Work()
        if isinstance(event, GroupCreation | GroupAssignment | StaticMemberReplacement):
            self.classic.written(event, error, now_ms, work)
        elif isinstance(event, GroupDowngrade):
            self.classic.begin_after_downgrade(event.group_id, event.protocols, now_ms, work)
        return work.decide()

    def _get(self, group_id: str) -> Group:
        if group_id is None:
            raise InvalidGroupId("there is no group id")
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return group


def _describe_classic(group: ClassicGroup) -> DescribedGroup:
    """Describe a classic group. Metadata and assignments are included only if the group is Stable."""
    is_stable = group.state is STABLE
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if is_stable else "",
        members=[
            DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata_for(group.protocol) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
    )
