"""CreateAcls in Kafka's protocol: always refused."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import create_acls
from sparklog.broker.apis.create_acls import CreateAclsRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.text import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, Wide


async def serve(call: KafkaCall, request: Message) -> Message:
    return await call.serve(create_acls.API, CreateAclsRequest())


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    refused = {"error_code": error, "error_message": message_of(error)}
    return call.answer(results=[refused for _ in request.creations])


TRANSLATION = Translation(api=create_acls.API, serve=serve, refuse=refuse, wide=Wide(("creations",), ("results",)))
