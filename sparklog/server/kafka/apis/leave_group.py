"""LeaveGroup in Kafka's protocol: several members from version 3 on (KIP-345).

Up to version 2 there is one member, and its error is the error of the response. From version 3 on, each member gets
UNKNOWN_MEMBER_ID if the group does not exist.
"""

from __future__ import annotations

from sparklog.base.errors import KafkaError, UnknownMemberId
from sparklog.broker.apis import group_apis
from sparklog.group.requests import LeaveGroup, LeaveGroupResponse, LeavingMember, LeftMember
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation, Wide

FIRST_WITH_SEVERAL = 3


async def serve(call: KafkaCall, request: Message) -> Message:
    wanted = LeaveGroup(group_id=request.group_id, members=_members(call, request))
    response = await call.broker.serve(group_apis.LEAVE_GROUP, wanted)
    if isinstance(response.error, UnknownMemberId) and call.version >= FIRST_WITH_SEVERAL:
        response = LeaveGroupResponse(members=[_not_there(member, response.error) for member in wanted.members])
    return _answer(call, response)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return _answer(call, LeaveGroupResponse(error=error))


def _members(call: KafkaCall, request: Message) -> list[LeavingMember]:
    if call.version < FIRST_WITH_SEVERAL:
        return [LeavingMember(member_id=request.member_id)]
    return [
        LeavingMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            reason=getattr(member, "reason", None) or "",
        )
        for member in request.members
    ]


def _not_there(member: LeavingMember, error: KafkaError) -> LeftMember:
    return LeftMember(member_id=member.member_id, group_instance_id=member.group_instance_id, error=error)


def _answer(call: KafkaCall, response: LeaveGroupResponse) -> Message:
    error = response.error
    if call.version < FIRST_WITH_SEVERAL and not error and response.members:
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


TRANSLATION = Translation(api=group_apis.LEAVE_GROUP, serve=serve, refuse=refuse, wide=Wide(("members",), ("members",)))
