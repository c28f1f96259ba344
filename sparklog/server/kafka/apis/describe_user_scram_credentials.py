"""DescribeUserScramCredentials in Kafka's protocol."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import describe_user_scram_credentials
from sparklog.broker.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation, Wide


async def serve(call: KafkaCall, request: Message) -> Message:
    wanted = DescribeUserScramCredentialsRequest(users=[each.name for each in request.users or ()])
    response = await call.broker.serve(describe_user_scram_credentials.API, wanted)
    return call.answer(
        error_message=None,
        results=[
            {
                "user": found.user,
                "error_code": found.error,
                "error_message": str(found.error) if found.error else None,
                "credential_infos": [
                    {"mechanism": int(mechanism), "iterations": iterations}
                    for mechanism, iterations in found.iterations.items()
                ],
            }
            for found in response.users
        ],
    )


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=str(error), results=())


TRANSLATION = Translation(
    api=describe_user_scram_credentials.API, serve=serve, refuse=refuse, wide=Wide(("users",), ("results",))
)
