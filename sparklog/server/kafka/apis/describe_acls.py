"""DescribeAcls in Kafka's protocol: always refused."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import describe_acls
from sparklog.broker.apis.describe_acls import DescribeAclsRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.text import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    return await call.serve(describe_acls.API, DescribeAclsRequest())


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=message_of(error), resources=[])


TRANSLATION = Translation(api=describe_acls.API, serve=serve, refuse=refuse)
