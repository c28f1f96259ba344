"""DescribeAcls, CreateAcls and DeleteAcls in Kafka's protocol: always refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.broker.api import Api
from sparklog.broker.apis import acls
from sparklog.broker.apis.acls import AclsRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, Wide


def _serve(api: Api[AclsRequest, Any]) -> Callable[[KafkaCall, Message], Awaitable[Message]]:
    async def serve(call: KafkaCall, request: Message) -> Message:
        return await call.broker.serve(api, AclsRequest())

    return serve


def _refuse_to_describe(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=message_of(error), resources=[])


def _refuse_to_create(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    refused = {"error_code": error, "error_message": message_of(error)}
    return call.answer(results=[refused for _ in request.creations])


def _refuse_to_delete(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    refused: dict[str, Any] = {"error_code": error, "error_message": message_of(error), "matching_acls": []}
    return call.answer(filter_results=[refused for _ in request.filters])


DESCRIBE_ACLS = Translation(api=acls.DESCRIBE_ACLS, serve=_serve(acls.DESCRIBE_ACLS), refuse=_refuse_to_describe)
CREATE_ACLS = Translation(
    api=acls.CREATE_ACLS,
    serve=_serve(acls.CREATE_ACLS),
    refuse=_refuse_to_create,
    wide=Wide(("creations",), ("results",)),
)
DELETE_ACLS = Translation(
    api=acls.DELETE_ACLS,
    serve=_serve(acls.DELETE_ACLS),
    refuse=_refuse_to_delete,
    wide=Wide(("filters",), ("filter_results",)),
)
