"""The APIs of groups whose handlers only pass each request on to the group coordinator.

OffsetCommit and OffsetDelete check the partitions first, and have modules of their own. The versions are Kafka 4's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from msgspec import structs

from sparklog.base.acls import AclOperation
from sparklog.base.errors import KafkaError
from sparklog.broker.api import Api
from sparklog.broker.rights import (
    GROUP,
    TOPIC,
    Access,
    Either,
    OnAll,
    OnAnswers,
    OnEach,
    OnEachKey,
    OneOf,
    OnShown,
    Serve,
    itself,
    on_cluster,
    on_group,
)
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import (
    CommittedOffset,
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    DescribedConsumerGroup,
    DescribedGroup,
    OffsetFetchResponse,
)

Request_contra = TypeVar("Request_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)


class _Handle(Protocol[Request_contra, Response_co]):
    def __call__(self, request: Request_contra, *, groups: GroupCoordinator) -> Awaitable[Response_co]: ...


def _by(
    method: Callable[[GroupCoordinator, Request_contra], Awaitable[Response_co]],
) -> _Handle[Request_contra, Response_co]:
    """Return the handler that passes a request on to this method of the coordinator."""

    name = method.__name__

    def handle(request: Request_contra, *, groups: GroupCoordinator) -> Awaitable[Response_co]:
        answer: Awaitable[Response_co] = getattr(groups, name)(request)
        return answer

    return handle


def _topic_of_offset(offset: CommittedOffset, access: Access) -> str:
    return offset.partition.topic


def _no_offset(offset: CommittedOffset, error: KafkaError) -> CommittedOffset:
    return CommittedOffset(partition=offset.partition, error=error)


def _no_group(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error=error)


def _no_consumer_group(group_id: str, error: KafkaError) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=group_id, error=error)


def _hide(group: DescribedConsumerGroup, access: Access) -> DescribedConsumerGroup:
    """Return the group, or an error if its members have partitions of topics that the client may not describe."""
    assigned = {name.topic for member in group.members for name in (*member.assignment, *member.target_assignment)}
    for topic in sorted(assigned):
        if not access.may(AclOperation.DESCRIBE, TOPIC, topic):
            return _no_consumer_group(group.group_id, access.refusal(AclOperation.DESCRIBE, TOPIC, topic))
    return group


class TopicsOfMembers:
    """DESCRIBE on the topics of all partitions of a group's members; without it, the group gets an error.

    Implements Right.
    """

    def admits(self, request: ConsumerGroupDescribe, access: Access) -> bool:
        return False  # decided by the response

    async def apply(
        self, request: ConsumerGroupDescribe, access: Access, serve: Serve
    ) -> ConsumerGroupDescribeResponse:
        response: ConsumerGroupDescribeResponse = await serve(request)
        groups = [_hide(group, access) for group in response.groups]
        if not any(shown is group for shown, group in zip(groups, response.groups, strict=True)):
            access.nothing_is_left()
        return ConsumerGroupDescribeResponse(groups=groups)

    def __str__(self) -> str:
        return "DESCRIBE on each TOPIC of a member's partitions"


OFFSET_FETCH = Api(
    name="OffsetFetch",
    summary="read the committed offsets of groups",
    handle=_by(GroupCoordinator.fetch_offsets),
    rights=(
        on_group(AclOperation.DESCRIBE, lambda error: OffsetFetchResponse(error=error)),
        Either(
            lambda request: request.partitions is None,
            OnShown(AclOperation.DESCRIBE, TOPIC, "offsets", _topic_of_offset),
            OnAnswers(AclOperation.DESCRIBE, TOPIC, "offsets", _topic_of_offset, _no_offset),
        ),
    ),
    key=9,
    versions=(1, 10),
)
JOIN_GROUP = Api(
    name="JoinGroup",
    summary="join a group, or its next generation",
    handle=_by(GroupCoordinator.join),
    rights=(on_group(AclOperation.READ),),
    key=11,
    versions=(0, 9),
)
"""The answer waits until all members have joined or the rebalance timeout has passed."""
HEARTBEAT = Api(
    name="Heartbeat",
    summary="keep a member of a group alive, and tell it whether it must rejoin",
    handle=_by(GroupCoordinator.heartbeat),
    rights=(on_group(AclOperation.READ),),
    key=12,
    versions=(0, 4),
)
LEAVE_GROUP = Api(
    name="LeaveGroup",
    summary="remove members at once, instead of when their sessions expire",
    handle=_by(GroupCoordinator.leave),
    rights=(on_group(AclOperation.READ),),
    key=13,
    versions=(0, 5),
)
SYNC_GROUP = Api(
    name="SyncGroup",
    summary="distribute the assignments of a group's leader, each member's to that member",
    handle=_by(GroupCoordinator.sync),
    rights=(on_group(AclOperation.READ),),
    key=14,
    versions=(0, 5),
)
"""The answer to a member waits for the request of the group's leader."""
DESCRIBE_GROUPS = Api(
    name="DescribeGroups",
    summary="describe groups of the classic protocol, with their members",
    handle=_by(GroupCoordinator.describe),
    rights=(OnEach(AclOperation.DESCRIBE, GROUP, "group_ids", itself, _no_group, "groups"),),
    key=15,
    versions=(0, 6),
)
LIST_GROUPS = Api(
    name="ListGroups",
    summary="list the groups that this broker coordinates",
    handle=_by(GroupCoordinator.list),
    rights=(
        OneOf(
            (on_cluster(AclOperation.DESCRIBE),),
            OnShown(AclOperation.DESCRIBE, GROUP, "groups", lambda found, access: found.group_id),
        ),
    ),
    key=16,
    versions=(0, 5),
)
DELETE_GROUPS = Api(
    name="DeleteGroups",
    summary="delete groups without members, with their committed offsets",
    handle=_by(GroupCoordinator.delete),
    rights=(OnEachKey(AclOperation.DELETE, GROUP, "group_ids", itself),),
    key=42,
    versions=(0, 2),
)


class MatchingTopics:
    """DESCRIBE on each topic that a group's regular expressions match; without it, a topic does not match.

    Implements Right.

    As in Apache Kafka, an expression is matched for the whole group, with the rights of the member whose heartbeat
    comes first after a change of topics.
    """

    def admits(self, request: ConsumerGroupHeartbeat, access: Access) -> bool:
        return False  # the coordinator knows the expressions

    async def apply(self, request: ConsumerGroupHeartbeat, access: Access, serve: Serve) -> Any:
        def may_describe(topic: str) -> bool:
            return access.may(AclOperation.DESCRIBE, TOPIC, topic)

        return await serve(structs.replace(request, may_describe=may_describe))

    def __str__(self) -> str:
        return "DESCRIBE on each TOPIC that matches"


CONSUMER_GROUP_HEARTBEAT = Api(
    name="ConsumerGroupHeartbeat",
    summary="keep a member of a consumer group alive, and assign it partitions",
    handle=_by(GroupCoordinator.consumer_heartbeat),
    rights=(
        on_group(AclOperation.READ),
        OnAll(AclOperation.DESCRIBE, TOPIC, lambda request: request.subscribed_topic_names or ()),
        MatchingTopics(),
    ),
    key=68,
    versions=(0, 1),
)
"""The newer consumer protocol, KIP-848."""
CONSUMER_GROUP_DESCRIBE = Api(
    name="ConsumerGroupDescribe",
    summary="describe groups of the newer consumer protocol (KIP-848), with their members",
    handle=_by(GroupCoordinator.consumer_describe),
    rights=(OnEach(AclOperation.DESCRIBE, GROUP, "group_ids", itself, _no_consumer_group, "groups"), TopicsOfMembers()),
    key=69,
    versions=(0, 1),
)
