"""Membership in a group of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup in Kafka's protocol.

JoinGroup:

- Version 0 has no rebalance timeout; the session timeout is used for both.
- From version 4 on, a new member gets its id before it joins (KIP-394).
- From version 9 on, the response can make a returning static leader skip the assignment (KIP-814).

SyncGroup: from version 5 on, the member must send its protocol (KIP-559).

LeaveGroup: several members from version 3 on (KIP-345). Up to version 2 there is one member, and its error is the error
of the response. From version 3 on, each member gets UNKNOWN_MEMBER_ID if the group does not exist.
"""

from __future__ import annotations

from sparklog.base.errors import InconsistentGroupProtocol, KafkaError, UnknownMemberId
from sparklog.broker.apis import group_apis
from sparklog.group.requests import (
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    SyncGroup,
)
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays

FIRST_JOIN_WITH_REBALANCE_TIMEOUT = 1
FIRST_JOIN_WITH_KNOWN_MEMBER_ID = 4
FIRST_JOIN_WITH_NULL_PROTOCOL = 7
FIRST_JOIN_WITH_SKIP_ASSIGNMENT = 9
FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_LEAVE_WITH_SEVERAL = 3


async def _join(call: KafkaCall, request: Message) -> Message:
    has_both = call.version >= FIRST_JOIN_WITH_REBALANCE_TIMEOUT
    wanted = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        client_id=call.client_id or "",
        client_host=call.client_host,
        protocol_type=request.protocol_type,
        protocols=[(protocol.name, protocol.metadata) for protocol in request.protocols],
        session_timeout_ms=whole_ms(request.session_timeout),
        rebalance_timeout_ms=whole_ms(request.rebalance_timeout if has_both else request.session_timeout),
        requires_known_member_id=call.version >= FIRST_JOIN_WITH_KNOWN_MEMBER_ID,
        supports_skipping_assignment=call.version >= FIRST_JOIN_WITH_SKIP_ASSIGNMENT,
        reason=getattr(request, "reason", None) or "",
    )
    return _join_answer(call, await call.serve(group_apis.JOIN_GROUP, wanted))


def _refuse_to_join(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return _join_answer(call, JoinGroupResponse(error=error, member_id=request.member_id))


def _join_answer(call: KafkaCall, response: JoinGroupResponse) -> Message:
    return call.answer(
        error_code=response.error,
        generation_id=response.generation,
        protocol_type=response.protocol_type,
        protocol_name=response.protocol if call.version >= FIRST_JOIN_WITH_NULL_PROTOCOL else response.protocol or "",
        leader=response.leader,
        skip_assignment=response.skip_assignment,
        member_id=response.member_id,
        members=[
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata,
            }
            for member in response.members
        ],
    )


async def _sync(call: KafkaCall, request: Message) -> Message:
    if call.version >= FIRST_SYNC_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        raise InconsistentGroupProtocol("protocol type and name must be given")
    wanted = SyncGroup(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    response = await call.serve(group_apis.SYNC_GROUP, wanted)
    return call.answer(
        error_code=response.error,
        protocol_type=response.protocol_type,
        protocol_name=response.protocol,
        assignment=response.assignment,
    )


def _refuse_to_sync(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, assignment=b"")


async def _heartbeat(call: KafkaCall, request: Message) -> Message:
    wanted = Heartbeat(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
    )
    response = await call.serve(group_apis.HEARTBEAT, wanted)
    return call.answer(error_code=response.error)


async def _leave(call: KafkaCall, request: Message) -> Message:
    wanted = LeaveGroup(group_id=request.group_id, members=_leaving_members(call, request))
    response = await call.serve(group_apis.LEAVE_GROUP, wanted)
    if isinstance(response.error, UnknownMemberId) and call.version >= FIRST_LEAVE_WITH_SEVERAL:
        response = LeaveGroupResponse(members=[_missing_member(member, response.error) for member in wanted.members])
    return _leave_answer(call, response)


def _refuse_to_leave(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return _leave_answer(call, LeaveGroupResponse(error=error))


def _leaving_members(call: KafkaCall, request: Message) -> list[LeavingMember]:
    if call.version < FIRST_LEAVE_WITH_SEVERAL:
        return [LeavingMember(member_id=request.member_id)]
    return [
        LeavingMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            reason=getattr(member, "reason", None) or "",
        )
        for member in request.members
    ]


def _missing_member(member: LeavingMember, error: KafkaError) -> LeftMember:
    return LeftMember(member_id=member.member_id, group_instance_id=member.group_instance_id, error=error)


def _leave_answer(call: KafkaCall, response: LeaveGroupResponse) -> Message:
    error = response.error
    if call.version < FIRST_LEAVE_WITH_SEVERAL and not error and response.members:
        error = response.members[0].error
    return call.answer(
        error_code=error,
        members=[
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "error_code": member.error,
            }
            for member in response.members
        ],
    )


JOIN_GROUP = Translation(api=group_apis.JOIN_GROUP, serve=_join, refuse=_refuse_to_join, max_elements=1_000)
SYNC_GROUP = Translation(api=group_apis.SYNC_GROUP, serve=_sync, refuse=_refuse_to_sync)
HEARTBEAT = Translation(api=group_apis.HEARTBEAT, serve=_heartbeat)
LEAVE_GROUP = Translation(
    api=group_apis.LEAVE_GROUP, serve=_leave, refuse=_refuse_to_leave, wide=WideArrays(("members",), ("members",))
)
