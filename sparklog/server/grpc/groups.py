"""The service `Groups`: consumer groups and their committed offsets.

A member's client id is the call's metadata `client-id`; its host is the address of the caller. For DescribeGroups,
the ConsumerProtocol bytes of classic members are decoded here, not by the callers.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.base.consumer_protocol import PROTOCOL_TYPE, read_assignment, read_subscription
from sparklog.base.errors import GroupIdNotFound, InvalidRequest
from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import read_partitions, to_message, to_value
from sparklog.broker.apis import (
    find_coordinator,
    group_apis,
    offset_commit,
    offset_delete,
)
from sparklog.broker.node import Broker
from sparklog.group import requests as group
from sparklog.server.grpc.call import GrpcCall
from sparklog.server.grpc.errors import error_message
from sparklog.server.grpc.service import LARGE_ELEMENTS, servicer_method
from sparklog.v1 import groups_pb2

CLASSIC, CONSUMER = "classic", "consumer"
REBALANCE_TIMEOUT_MS = 300_000
BYTES_OF_A_NAME = 8
"""Approximate minimum bytes of a topic or a partition in a classic member's metadata and assignment."""


class GroupsServicer:
    """Translation of the service's messages for one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    FindCoordinator = servicer_method(
        find_coordinator.API,
        find_coordinator.FindCoordinatorRequest,
        groups_pb2.FindCoordinatorResponse,
        response_fields=lambda response: {"coordinators": [_coordinator(found) for found in response.coordinators]},
    )
    SyncGroup = servicer_method(group_apis.SYNC_GROUP, group.SyncGroup, groups_pb2.SyncGroupResponse)
    Heartbeat = servicer_method(group_apis.HEARTBEAT, group.Heartbeat, groups_pb2.HeartbeatResponse)
    LeaveGroup = servicer_method(group_apis.LEAVE_GROUP, group.LeaveGroup, groups_pb2.LeaveGroupResponse)
    OffsetCommit = servicer_method(offset_commit.API, group.OffsetCommit, groups_pb2.OffsetCommitResponse)
    OffsetFetch = servicer_method(group_apis.OFFSET_FETCH, group.OffsetFetch, groups_pb2.OffsetFetchResponse)
    OffsetDelete = servicer_method(offset_delete.API, group.OffsetDelete, groups_pb2.OffsetDeleteResponse)
    ListGroups = servicer_method(group_apis.LIST_GROUPS, group.ListGroups, groups_pb2.ListGroupsResponse)
    DeleteGroups = servicer_method(group_apis.DELETE_GROUPS, group.DeleteGroups, groups_pb2.DeleteGroupsResponse)

    async def JoinGroup(self, request: groups_pb2.JoinGroupRequest, call: GrpcCall) -> groups_pb2.JoinGroupResponse:
        wanted = to_value(
            request,
            group.JoinGroup,
            client_id=call.client_id,
            client_host=call.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms or request.session_timeout_ms,
        )
        response = await call.serve(group_apis.JOIN_GROUP, wanted)
        answer: groups_pb2.JoinGroupResponse = to_message(response, groups_pb2.JoinGroupResponse)
        return answer

    async def ConsumerGroupHeartbeat(
        self, request: groups_pb2.ConsumerGroupHeartbeatRequest, call: GrpcCall
    ) -> groups_pb2.ConsumerGroupHeartbeatResponse:
        if not request.member_id:
            raise InvalidRequest("member_id can't be empty: choose one, such as a UUID, and keep it")
        regex = request.topic_regex if request.HasField("topic_regex") else None
        wanted = to_value(
            request,
            group.ConsumerGroupHeartbeat,
            client_id=call.client_id,
            client_host=call.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms or REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=list(request.topics) if request.topics or regex is None else None,
            subscribed_topic_regex=regex,
            owned_partitions=read_partitions(request.owned) if request.member_epoch else [],
        )
        response = await call.serve(group_apis.CONSUMER_GROUP_HEARTBEAT, wanted)
        answer: groups_pb2.ConsumerGroupHeartbeatResponse = to_message(
            response,
            groups_pb2.ConsumerGroupHeartbeatResponse,
            assignment=_partition_messages(response.assignment or ()),
        )
        return answer

    async def DescribeGroups(
        self, request: groups_pb2.DescribeGroupsRequest, call: GrpcCall
    ) -> groups_pb2.DescribeGroupsResponse:
        asked = list(request.group_ids)
        newer = await call.serve(group_apis.CONSUMER_GROUP_DESCRIBE, group.ConsumerGroupDescribe(group_ids=asked))
        found = {item.group_id: item for item in newer.groups if not isinstance(item.error, GroupIdNotFound)}
        others = [group_id for group_id in asked if group_id not in found]
        classic = await call.serve(group_apis.DESCRIBE_GROUPS, group.DescribeGroups(group_ids=others))

        def translate() -> groups_pb2.DescribeGroupsResponse:
            messages = {group_id: _consumer_group(item) for group_id, item in found.items()}
            messages |= {item.group_id: _classic_group(item) for item in classic.groups}
            for message in messages.values():
                message.coordinator = self.broker.config.broker_id
            return groups_pb2.DescribeGroupsResponse(groups=[messages[group_id] for group_id in dict.fromkeys(asked)])

        is_large = sum(map(_weight, found.values())) + sum(map(_weight, classic.groups)) > LARGE_ELEMENTS
        return await self.broker.slices.in_thread(translate) if is_large else translate()


def _weight(found: group.DescribedGroup | group.DescribedConsumerGroup) -> int:
    """Return the approximate number of names and partitions in a group's description, beside its members."""
    if isinstance(found, group.DescribedGroup):
        return sum(1 + (len(member.metadata) + len(member.assignment)) // BYTES_OF_A_NAME for member in found.members)
    return sum(
        1 + len(member.subscribed_topic_names) + len(member.assignment) + len(member.target_assignment)
        for member in found.members
    )


def _coordinator(found: find_coordinator.FoundCoordinator) -> groups_pb2.Coordinator:
    return groups_pb2.Coordinator(
        group_id=found.key,
        error=error_message(found.error),
        broker_id=found.broker.broker_id if found.broker else -1,
        grpc_address=found.broker.grpc_address if found.broker else "",
    )


def _classic_group(found: group.DescribedGroup) -> groups_pb2.GroupDescription:
    return groups_pb2.GroupDescription(
        group_id=found.group_id,
        error=error_message(found.error),
        type=CLASSIC,
        state=found.state,
        protocol_type=found.protocol_type,
        protocol=found.protocol,
        members=[_classic_member(member, found.protocol_type) for member in found.members],
    )


def _classic_member(member: group.DescribedMember, protocol_type: str) -> groups_pb2.GroupMember:
    topics, assigned = _topics_and_partitions(member) if protocol_type == PROTOCOL_TYPE else ([], [])
    return groups_pb2.GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=topics,
        assignment=_partition_messages(assigned),
        member_epoch=-1,
    )


def _topics_and_partitions(member: group.DescribedMember) -> tuple[list[str], list[TopicPartition]]:
    """Return a member's topics and partitions.

    Empty for an unknown format, and between generations, when there is no metadata.
    """
    try:
        topics = list(read_subscription(member.metadata).topics) if member.metadata else []
        return topics, list(read_assignment(member.assignment).partitions)
    except ValueError:
        return [], []


def _consumer_group(found: group.DescribedConsumerGroup) -> groups_pb2.GroupDescription:
    return groups_pb2.GroupDescription(
        group_id=found.group_id,
        error=error_message(found.error),
        type=CONSUMER,
        state=found.state,
        protocol_type=PROTOCOL_TYPE,
        protocol=found.assignor,
        group_epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        members=[
            groups_pb2.GroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                topics=member.subscribed_topic_names,
                topic_regex=member.subscribed_topic_regex or "",
                assignment=_partition_messages(member.assignment),
                target_assignment=_partition_messages(member.target_assignment),
                member_epoch=member.member_epoch,
                rack=member.rack_id or "",
            )
            for member in found.members
        ],
    )


def _partition_messages(partitions: Iterable[TopicPartition]) -> list[groups_pb2.GroupPartition]:
    return [to_message(name, groups_pb2.GroupPartition) for name in sorted(partitions)]
