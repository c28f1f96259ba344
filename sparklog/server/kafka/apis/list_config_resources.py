"""ListConfigResources in Kafka's protocol. Version 0 lists client metrics only."""

from __future__ import annotations

from sparklog.base.errors import KafkaError, UnsupportedVersion
from sparklog.broker.apis import list_config_resources
from sparklog.broker.apis.list_config_resources import ListConfigResourcesRequest
from sparklog.broker.resources import ResourceType
from sparklog.server.kafka.configs import (
    BROKER_LOGGER,
    GROUP,
    RESOURCE_NUMBERS,
    RESOURCE_TYPES,
)
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation

FIRST_WITH_TYPES = 1
WITHOUT_CONFIGURATION = {BROKER_LOGGER, GROUP}


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the resources of the requested types."""
    response = await call.serve(
        list_config_resources.API, ListConfigResourcesRequest(types=_types(call.version, request))
    )
    return call.answer(
        config_resources=[
            {"resource_name": found.name, "resource_type": RESOURCE_NUMBERS[ResourceType(found.type)]}
            for found in response.resources
        ]
    )


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error and without resources."""
    return call.answer(error_code=error, config_resources=[])


def _types(version: int, request: Message) -> list[ResourceType]:
    """Return the requested types: client metrics in version 0, all if the list is empty.

    Raises UnsupportedVersion if one is unknown.
    """
    if version < FIRST_WITH_TYPES:
        return [ResourceType.CLIENT_METRICS]
    if unknown := set(request.resource_types) - RESOURCE_TYPES.keys() - WITHOUT_CONFIGURATION:
        raise UnsupportedVersion(f"there are no config resources of the types {sorted(unknown)}")
    if not request.resource_types:
        return list(ResourceType)
    return [RESOURCE_TYPES[number] for number in request.resource_types if number in RESOURCE_TYPES]


TRANSLATION = Translation(api=list_config_resources.API, serve=serve, refuse=refuse)
