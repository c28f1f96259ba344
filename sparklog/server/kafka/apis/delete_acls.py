"""DeleteAcls in Kafka's protocol: always refused."""

from __future__ import annotations

from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import delete_acls
from sparklog.broker.apis.delete_acls import DeleteAclsRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.text import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, Wide


async def serve(call: KafkaCall, request: Message) -> Message:
    return await call.serve(delete_acls.API, DeleteAclsRequest())


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    refused: dict[str, Any] = {"error_code": error, "error_message": message_of(error), "matching_acls": []}
    return call.answer(filter_results=[refused for _ in request.filters])


TRANSLATION = Translation(api=delete_acls.API, serve=serve, refuse=refuse, wide=Wide(("filters",), ("filter_results",)))
