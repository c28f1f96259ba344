"""DescribeGroups, ListGroups and DeleteGroups in Kafka's protocol.

- DescribeGroups: a missing group gets GROUP_ID_NOT_FOUND from version 6 on (KIP-1043); before, only the state Dead.
- ListGroups: filters by state from version 4 on, by type from version 5 on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from sparklog.base.acls import AclResourceType
from sparklog.base.errors import GroupIdNotFound, KafkaError
from sparklog.broker.apis import group_apis
from sparklog.group.requests import (
    DeleteGroups,
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    ListedGroup,
    ListGroups,
)
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.translation import OPERATIONS_NOT_ASKED, KafkaCall, Translation, WideArrays
from sparklog.server.kafka.wide_requests import answer_in_parts

FIRST_DESCRIBE_WITH_NOT_FOUND = 6
MANY_GROUPS = 1_000
"""The number of lists with more groups in memory is limited."""
DESCRIBED = WideArrays(("groups",), ("groups", "members"), once=True)


async def _describe(call: KafkaCall, request: Message) -> Message:
    response = await call.serve(group_apis.DESCRIBE_GROUPS, DescribeGroups(group_ids=request.groups))
    ask = getattr(request, "include_authorized_operations", False)
    operations = {
        group.group_id: call.operations(AclResourceType.GROUP, group.group_id, is_asked=ask)
        for group in response.groups
    }

    def make(parts: list[tuple[DescribedGroup, list[DescribedMember]]]) -> Message:
        return call.answer(
            groups=[_group(call, group, members, operations=operations[group.group_id]) for group, members in parts]
        )

    return await answer_in_parts(call, response.groups, lambda group: group.members, make, DESCRIBED.response_arrays)


def _refuse_to_describe(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    groups = [DescribedGroup(group_id=group_id, error=error, state="") for group_id in request.groups]
    return call.answer(groups=[_group(call, group, (), operations=OPERATIONS_NOT_ASKED) for group in groups])


def _group(
    call: KafkaCall, group: DescribedGroup, members: Sequence[DescribedMember], *, operations: int
) -> dict[str, Any]:
    error = group.error
    if call.version < FIRST_DESCRIBE_WITH_NOT_FOUND and isinstance(error, GroupIdNotFound):
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
        "authorized_operations": OPERATIONS_NOT_ASKED if error else operations,
    }


async def _list(call: KafkaCall, request: Message) -> Message:
    wanted = ListGroups(states=getattr(request, "states_filter", ()), types=getattr(request, "types_filter", ()))
    response = await call.serve(group_apis.LIST_GROUPS, wanted)

    def make(parts: list[tuple[ListedGroup, list[None]]]) -> Message:
        return call.answer(error_code=response.error, groups=[_listed_group(group) for group, _ in parts])

    slices = call.broker.slices
    async with slices.few if len(response.groups) > MANY_GROUPS else nullcontext():
        return await answer_in_parts(call, response.groups, lambda _: (), make, ("groups",))


def _listed_group(group: ListedGroup) -> dict[str, str]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state,
        "group_type": group.type,
    }


def _refuse_to_list(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, groups=[])


async def _delete(call: KafkaCall, request: Message) -> Message:
    response = await call.serve(group_apis.DELETE_GROUPS, DeleteGroups(group_ids=request.groups_names))
    return _delete_answer(call, response.errors)


def _refuse_to_delete(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return _delete_answer(call, dict.fromkeys(request.groups_names, error))


def _delete_answer(call: KafkaCall, errors: Mapping[str, KafkaError | None]) -> Message:
    return call.answer(results=[{"group_id": group_id, "error_code": error} for group_id, error in errors.items()])


DESCRIBE_GROUPS = Translation(
    api=group_apis.DESCRIBE_GROUPS,
    serve=_describe,
    refuse=_refuse_to_describe,
    wide=DESCRIBED,
)
LIST_GROUPS = Translation(api=group_apis.LIST_GROUPS, serve=_list, refuse=_refuse_to_list)
DELETE_GROUPS = Translation(
    api=group_apis.DELETE_GROUPS,
    serve=_delete,
    refuse=_refuse_to_delete,
    wide=WideArrays(("groups_names",), ("results",)),
)
