"""DescribeGroups in Kafka's protocol.

A missing group gets GROUP_ID_NOT_FOUND from version 6 on (KIP-1043). Before, it only has the state Dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparklog.base.errors import GroupIdNotFound, KafkaError
from sparklog.broker.apis import group_apis
from sparklog.group.requests import DescribedGroup, DescribedMember, DescribeGroups
from sparklog.server.kafka import operations
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.text import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, Wide
from sparklog.server.kafka.wide_requests import answer_in_parts

FIRST_WITH_NOT_FOUND = 6
WIDE = Wide(("groups",), ("groups", "members"), once=True)


async def serve(call: KafkaCall, request: Message) -> Message:
    response = await call.broker.serve(group_apis.DESCRIBE_GROUPS, DescribeGroups(group_ids=request.groups))
    ask = getattr(request, "include_authorized_operations", False)

    def make(parts: list[tuple[DescribedGroup, list[DescribedMember]]]) -> Message:
        return call.answer(groups=[_group(call, group, members, ask_operations=ask) for group, members in parts])

    return await answer_in_parts(call, response.groups, lambda group: group.members, make, WIDE.tells)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    groups = [DescribedGroup(group_id=group_id, error=error, state="") for group_id in request.groups]
    return call.answer(groups=[_group(call, group, (), ask_operations=False) for group in groups])


def _group(
    call: KafkaCall, group: DescribedGroup, members: Sequence[DescribedMember], *, ask_operations: bool
) -> dict[str, Any]:
    error = group.error
    if call.version < FIRST_WITH_NOT_FOUND and isinstance(error, GroupIdNotFound):
        error = None
    return {
        "error_code": error,
        "error_message": message_of(error),
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in members
        ],
        "authorized_operations": operations.ON_GROUP if ask_operations and not error else operations.NOT_ASKED,
    }


TRANSLATION = Translation(api=group_apis.DESCRIBE_GROUPS, serve=serve, refuse=refuse, wide=WIDE)
