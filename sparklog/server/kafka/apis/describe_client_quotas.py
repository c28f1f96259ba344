"""DescribeClientQuotas in Kafka's protocol."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import describe_client_quotas
from sparklog.broker.apis.describe_client_quotas import DescribeClientQuotasRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    await call.serve(describe_client_quotas.API, DescribeClientQuotasRequest())
    return call.answer(error_message=None, entries=())


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=str(error), entries=None)


TRANSLATION = Translation(api=describe_client_quotas.API, serve=serve, refuse=refuse)
