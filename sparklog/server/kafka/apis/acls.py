"""DescribeAcls, CreateAcls and DeleteAcls in Kafka's protocol."""

from __future__ import annotations

from enum import IntEnum
from itertools import groupby
from typing import Any, TypeVar

from sparklog.base.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from sparklog.base.errors import KafkaError
from sparklog.broker.apis import acls
from sparklog.broker.apis.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays

_Enum = TypeVar("_Enum", bound=IntEnum)


async def _describe(call: KafkaCall, request: Message) -> Message:
    response = await call.serve(acls.DESCRIBE_ACLS, DescribeAclsRequest(filter=_filter(request)))
    resources = [
        {
            "resource_type": int(resource_type),
            "resource_name": name,
            "pattern_type": int(pattern_type),
            "acls": [_entry(acl) for acl in found],
        }
        for (resource_type, name, pattern_type), found in groupby(response.acls, key=_pattern)
    ]
    return call.answer(error_message=None, resources=resources)


async def _create(call: KafkaCall, request: Message) -> Message:
    wanted = [
        AclBinding(
            resource_type=_enum_member(AclResourceType, each.resource_type),
            name=each.resource_name,
            pattern_type=_enum_member(PatternType, each.resource_pattern_type),
            principal=each.principal,
            host=each.host,
            operation=_enum_member(AclOperation, each.operation),
            permission=_enum_member(AclPermission, each.permission_type),
        )
        for each in request.creations
    ]
    response = await call.serve(acls.CREATE_ACLS, CreateAclsRequest(acls=wanted))
    return call.answer(
        results=[{"error_code": each.error, "error_message": message_of(each.error)} for each in response.acls]
    )


async def _delete(call: KafkaCall, request: Message) -> Message:
    wanted = DeleteAclsRequest(filters=[_filter(each) for each in request.filters])
    response = await call.serve(acls.DELETE_ACLS, wanted)
    return call.answer(
        filter_results=[
            {
                "error_code": each.error,
                "error_message": message_of(each.error),
                "matching_acls": [
                    {
                        "error_message": None,
                        "resource_type": int(acl.resource_type),
                        "resource_name": acl.name,
                        "pattern_type": int(acl.pattern_type),
                        **_entry(acl),
                    }
                    for acl in each.acls
                ],
            }
            for each in response.filters
        ]
    )


def _filter(message: Message) -> AclBindingFilter:
    return AclBindingFilter(
        resource_type=_enum_member(AclResourceType, message.resource_type_filter),
        name=message.resource_name_filter,
        pattern_type=_enum_member(PatternType, message.pattern_type_filter),
        principal=message.principal_filter,
        host=message.host_filter,
        operation=_enum_member(AclOperation, message.operation),
        permission=_enum_member(AclPermission, message.permission_type),
    )


def _enum_member(kind: type[_Enum], number: int) -> _Enum:
    """Return the member of this number, or UNKNOWN."""
    return kind(number) if number in kind._value2member_map_ else kind(0)


def _pattern(acl: AclBinding) -> tuple[AclResourceType, str, PatternType]:
    return acl.resource_type, acl.name, acl.pattern_type


def _entry(acl: AclBinding) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }


def _refuse_to_describe(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=message_of(error), resources=[])


def _refuse_to_create(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    refused = {"error_code": error, "error_message": message_of(error)}
    return call.answer(results=[refused for _ in request.creations])


def _refuse_to_delete(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    refused: dict[str, Any] = {"error_code": error, "error_message": message_of(error), "matching_acls": []}
    return call.answer(filter_results=[refused for _ in request.filters])


DESCRIBE_ACLS = Translation(api=acls.DESCRIBE_ACLS, serve=_describe, refuse=_refuse_to_describe)
CREATE_ACLS = Translation(
    api=acls.CREATE_ACLS, serve=_create, refuse=_refuse_to_create, wide=WideArrays(("creations",), ("results",))
)
DELETE_ACLS = Translation(
    api=acls.DELETE_ACLS, serve=_delete, refuse=_refuse_to_delete, wide=WideArrays(("filters",), ("filter_results",))
)
