"""AlterConfigs and IncrementalAlterConfigs in Kafka's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import alter_configs
from sparklog.broker.apis.alter_configs import (
    MAX_KEYS,
    AlterConfigsRequest,
    ConfigChange,
    IncrementalAlterConfigsRequest,
    KeyChange,
    NewConfigs,
    ResourceResult,
)
from sparklog.server.kafka.configs import resource
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays


async def _alter(call: KafkaCall, request: Message) -> Message:
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
    response = await call.serve(alter_configs.ALTER_CONFIGS, wanted)
    return _answer(call, request, response.resources)


async def _alter_incrementally(call: KafkaCall, request: Message) -> Message:
    wanted = IncrementalAlterConfigsRequest(
        resources=[_change(asked) for asked in request.resources], validate_only=request.validate_only
    )
    response = await call.serve(alter_configs.INCREMENTAL_ALTER_CONFIGS, wanted)
    return _answer(call, request, response.resources)


def _change(asked: Message) -> ConfigChange:
    return ConfigChange(
        resource=resource(asked.resource_type, asked.resource_name),
        changes=[
            KeyChange(name=config.name, operation=config.config_operation, value=config.value)
            for config in asked.configs[: MAX_KEYS + 1]
        ],
    )


def _answer(call: KafkaCall, request: Message, results: Sequence[ResourceResult]) -> Message:
    return call.answer(
        responses=[_result(asked, done.error) for asked, done in zip(request.resources, results, strict=True)]
    )


def _refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(responses=[_result(asked, error) for asked in request.resources])


def _result(asked: Message, error: KafkaError | None) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message_of(error),
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
    }


_WIDE = WideArrays(("resources",), ("responses",), part=10)
ALTER_CONFIGS = Translation(api=alter_configs.ALTER_CONFIGS, serve=_alter, refuse=_refuse, wide=_WIDE)
INCREMENTAL_ALTER_CONFIGS = Translation(
    api=alter_configs.INCREMENTAL_ALTER_CONFIGS, serve=_alter_incrementally, refuse=_refuse, wide=_WIDE
)
