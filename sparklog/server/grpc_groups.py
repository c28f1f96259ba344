"""The service `Groups`: groups of consumers, and how far they have come.

A member's client id is the call's `client-id`; its host is where the call comes from. What members of a classic group
have told each other is opened here for DescribeGroups, so that whoever asks need not know ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sparklog.base.consumer_protocol import PROTOCOL_TYPE, read_assignment, read_subscription
from sparklog.base.errors import GroupIdNotFound, InvalidRequest, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from sparklog.broker.node import Broker
from sparklog.group import requests as group
from sparklog.server.grpc_errors import error_message
from sparklog.server.grpc_service import read_topic_id
from sparklog.v1 import groups_pb2

CLASSIC, CONSUMER = "classic", "consumer"
REBALANCE_TIMEOUT_MS = 300_000


class GroupsServicer:
    """Translates the service's messages for one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def FindCoordinator(self, request: groups_pb2.FindCoordinatorRequest) -> groups_pb2.FindCoordinatorResponse:
        wanted = find_coordinator.FindCoordinatorRequest(keys=list(request.group_ids))
        response = await self._broker.serve(find_coordinator.API, wanted)
        return groups_pb2.FindCoordinatorResponse(
            coordinators=[
                groups_pb2.Coordinator(
                    group_id=found.key,
                    error=error_message(found.error),
                    broker_id=found.broker.broker_id if found.broker else -1,
                    grpc_address=found.broker.grpc_address if found.broker else "",
                )
                for found in response.coordinators
            ]
        )

    async def JoinGroup(self, request: groups_pb2.JoinGroupRequest, context: Any) -> groups_pb2.JoinGroupResponse:
        wanted = group.JoinGroup(
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=_optional(request, "group_instance_id"),
            client_id=_client_id(context),
            client_host=_client_host(context),
            protocol_type=request.protocol_type,
            protocols=[(protocol.name, protocol.metadata) for protocol in request.protocols],
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms or request.session_timeout_ms,
            reason=request.reason,
        )
        response = await self._broker.serve(join_group.API, wanted)
        return groups_pb2.JoinGroupResponse(
            error=error_message(response.error),
            generation=response.generation,
            protocol_type=response.protocol_type or "",
            protocol=response.protocol or "",
            leader=response.leader,
            member_id=response.member_id,
            skip_assignment=response.skip_assignment,
            members=[
                groups_pb2.JoinedMember(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
                )
                for member in response.members
            ],
        )

    async def SyncGroup(self, request: groups_pb2.SyncGroupRequest) -> groups_pb2.SyncGroupResponse:
        wanted = group.SyncGroup(
            group_id=request.group_id,
            generation=request.generation,
            member_id=request.member_id,
            group_instance_id=_optional(request, "group_instance_id"),
            protocol_type=_optional(request, "protocol_type"),
            protocol=_optional(request, "protocol"),
            assignments={item.member_id: item.assignment for item in request.assignments},
        )
        response = await self._broker.serve(sync_group.API, wanted)
        return groups_pb2.SyncGroupResponse(
            error=error_message(response.error),
            assignment=response.assignment,
            protocol_type=response.protocol_type or "",
            protocol=response.protocol or "",
        )

    async def Heartbeat(self, request: groups_pb2.HeartbeatRequest) -> groups_pb2.HeartbeatResponse:
        wanted = group.Heartbeat(
            group_id=request.group_id,
            generation=request.generation,
            member_id=request.member_id,
            group_instance_id=_optional(request, "group_instance_id"),
        )
        response = await self._broker.serve(heartbeat.API, wanted)
        return groups_pb2.HeartbeatResponse(error=error_message(response.error))

    async def ConsumerGroupHeartbeat(
        self, request: groups_pb2.ConsumerGroupHeartbeatRequest, context: Any
    ) -> groups_pb2.ConsumerGroupHeartbeatResponse:
        if not request.member_id:
            raise InvalidRequest("member_id can't be empty: choose one, such as a UUID, and keep it")
        regex = _optional(request, "topic_regex")
        wanted = group.ConsumerGroupHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            client_id=_client_id(context),
            client_host=_client_host(context),
            group_instance_id=_optional(request, "group_instance_id"),
            rack_id=_optional(request, "rack_id"),
            rebalance_timeout_ms=request.rebalance_timeout_ms or REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=list(request.topics) if request.topics or regex is None else None,
            subscribed_topic_regex=regex,
            server_assignor=_optional(request, "server_assignor"),
            owned_partitions=_partitions(request.owned) if request.member_epoch else [],
        )
        response = await self._broker.serve(consumer_group_heartbeat.API, wanted)
        return groups_pb2.ConsumerGroupHeartbeatResponse(
            error=error_message(response.error),
            member_epoch=response.member_epoch,
            heartbeat_interval_ms=response.heartbeat_interval_ms,
            assignment=_partition_messages(response.assignment or ()),
        )

    async def LeaveGroup(self, request: groups_pb2.LeaveGroupRequest) -> groups_pb2.LeaveGroupResponse:
        members = [
            group.LeavingMember(
                member_id=member.member_id,
                group_instance_id=_optional(member, "group_instance_id"),
                reason=member.reason,
            )
            for member in request.members
        ]
        wanted = group.LeaveGroup(group_id=request.group_id, members=members)
        response = await self._broker.serve(leave_group.API, wanted)
        return groups_pb2.LeaveGroupResponse(
            error=error_message(response.error),
            members=[
                groups_pb2.LeftMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error=error_message(member.error),
                )
                for member in response.members
            ],
        )

    async def OffsetCommit(self, request: groups_pb2.OffsetCommitRequest) -> groups_pb2.OffsetCommitResponse:
        offsets = [
            group.OffsetToCommit(
                partition=TopicPartition(item.topic, item.partition),
                offset=item.offset,
                leader_epoch=item.leader_epoch if item.HasField("leader_epoch") else -1,
                metadata=item.metadata,
                topic_id=read_topic_id(item.topic_id),
            )
            for item in request.offsets
        ]
        wanted = group.OffsetCommit(
            group_id=request.group_id,
            generation_or_epoch=request.generation if request.HasField("generation") else group.NO_GENERATION,
            member_id=request.member_id,
            group_instance_id=_optional(request, "group_instance_id"),
            offsets=offsets,
        )
        response = await self._broker.serve(offset_commit.API, wanted)
        return groups_pb2.OffsetCommitResponse(partitions=_partition_results(response.errors))

    async def OffsetFetch(self, request: groups_pb2.OffsetFetchRequest) -> groups_pb2.OffsetFetchResponse:
        wanted = group.OffsetFetch(
            group_id=request.group_id,
            partitions=_partitions(request.partitions) or None,
            require_stable=request.require_stable,
        )
        response = await self._broker.serve(offset_fetch.API, wanted)
        return groups_pb2.OffsetFetchResponse(
            error=error_message(response.error),
            partitions=[
                groups_pb2.CommittedOffset(
                    topic=item.partition.topic,
                    partition=item.partition.partition,
                    error=error_message(item.error),
                    offset=item.offset,
                    leader_epoch=item.leader_epoch,
                    metadata=item.metadata,
                    commit_timestamp_ms=item.commit_timestamp_ms,
                    topic_id=str(item.topic_id or ""),
                )
                for item in response.offsets
            ],
        )

    async def OffsetDelete(self, request: groups_pb2.OffsetDeleteRequest) -> groups_pb2.OffsetDeleteResponse:
        wanted = group.OffsetDelete(group_id=request.group_id, partitions=_partitions(request.partitions))
        response = await self._broker.serve(offset_delete.API, wanted)
        return groups_pb2.OffsetDeleteResponse(
            error=error_message(response.error), partitions=_partition_results(response.errors)
        )

    async def ListGroups(self, request: groups_pb2.ListGroupsRequest) -> groups_pb2.ListGroupsResponse:
        wanted = group.ListGroups(states=list(request.states), types=list(request.types))
        response = await self._broker.serve(list_groups.API, wanted)
        return groups_pb2.ListGroupsResponse(
            error=error_message(response.error),
            groups=[
                groups_pb2.GroupListing(
                    group_id=found.group_id,
                    protocol_type=found.protocol_type,
                    state=found.state,
                    type=found.group_type,
                )
                for found in response.groups
            ],
        )

    async def DescribeGroups(self, request: groups_pb2.DescribeGroupsRequest) -> groups_pb2.DescribeGroupsResponse:
        asked = list(request.group_ids)
        newer = await self._broker.serve(consumer_group_describe.API, group.ConsumerGroupDescribe(group_ids=asked))
        found = {item.group_id: item for item in newer.groups if not isinstance(item.error, GroupIdNotFound)}
        others = [group_id for group_id in asked if group_id not in found]
        classic = await self._broker.serve(describe_groups.API, group.DescribeGroups(group_ids=others))
        messages = {group_id: _consumer_group(item) for group_id, item in found.items()}
        messages |= {item.group_id: _classic_group(item) for item in classic.groups}
        for message in messages.values():
            message.coordinator = self._broker.config.broker_id
        return groups_pb2.DescribeGroupsResponse(groups=[messages[group_id] for group_id in dict.fromkeys(asked)])

    async def DeleteGroups(self, request: groups_pb2.DeleteGroupsRequest) -> groups_pb2.DeleteGroupsResponse:
        response = await self._broker.serve(delete_groups.API, group.DeleteGroups(group_ids=list(request.group_ids)))
        return groups_pb2.DeleteGroupsResponse(
            groups=[
                groups_pb2.GroupResult(group_id=group_id, error=error_message(error))
                for group_id, error in response.errors.items()
            ]
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
    topics, assigned = _opened(member) if protocol_type == PROTOCOL_TYPE else ([], [])
    return groups_pb2.GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=topics,
        assignment=_partition_messages(assigned),
        member_epoch=-1,
    )


def _opened(member: group.DescribedMember) -> tuple[list[str], list[TopicPartition]]:
    """A member's topics and partitions. Between generations there is no metadata, and it may not be ours to read."""
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


def _partitions(messages: Iterable[groups_pb2.GroupPartition]) -> list[TopicPartition]:
    return [TopicPartition(item.topic, item.partition) for item in messages]


def _partition_messages(partitions: Iterable[TopicPartition]) -> list[groups_pb2.GroupPartition]:
    return [groups_pb2.GroupPartition(topic=item.topic, partition=item.partition) for item in sorted(partitions)]


def _partition_results(errors: Mapping[TopicPartition, KafkaError | None]) -> list[groups_pb2.PartitionResult]:
    return [
        groups_pb2.PartitionResult(topic=item.topic, partition=item.partition, error=error_message(error))
        for item, error in errors.items()
    ]


def _optional(message: Any, name: str) -> Any:
    """The field's value; None where it is absent."""
    return getattr(message, name) if message.HasField(name) else None


def _client_id(context: Any) -> str:
    return next((value for key, value in context.invocation_metadata() or () if key == "client-id"), "")


def _client_host(context: Any) -> str:
    """As Kafka shows it: /127.0.0.1. gRPC says ipv4:127.0.0.1:50123, or ipv6:%5B::1%5D:50123."""
    kind, _, address = context.peer().partition(":")
    host = address.rpartition(":")[0].removeprefix("%5B").removesuffix("%5D").strip("[]")
    return f"/{host}" if kind in ("ipv4", "ipv6") else f"/{context.peer()}"
