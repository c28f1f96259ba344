"""AlterConfigs in Kafka's protocol."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import alter_configs
from sparklog.broker.apis.alter_configs import AlterConfigsRequest, NewConfigs
from sparklog.broker.apis.incremental_alter_configs import MAX_KEYS
from sparklog.server.kafka.configs import alter_result, resource
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation, Wide


async def serve(call: KafkaCall, request: Message) -> Message:
    wanted = AlterConfigsRequest(
        resources=[
            NewConfigs(
                resource=resource(asked.resource_type, asked.resource_name),
                configs={config.name: config.value for config in asked.configs[: MAX_KEYS + 1]},
            )
            for asked in request.resources
        ],
        validate_only=request.validate_only,
    )
    response = await call.broker.serve(alter_configs.API, wanted)
    results = zip(request.resources, response.resources, strict=True)
    return call.answer(responses=[alter_result(asked, done.error) for asked, done in results])


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(responses=[alter_result(asked, error) for asked in request.resources])


TRANSLATION = Translation(
    api=alter_configs.API, serve=serve, refuse=refuse, wide=Wide(("resources",), ("responses",), part=10)
)
