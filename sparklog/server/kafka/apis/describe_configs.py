"""DescribeConfigs in Kafka's protocol.

A broker with an empty name stands for the dynamic defaults of all brokers; its result has only these.
"""

from __future__ import annotations

from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import describe_configs
from sparklog.broker.apis.describe_configs import ConfigQuery, DescribeConfigsRequest
from sparklog.broker.config_entries import ConfigEntry
from sparklog.server.kafka.configs import BROKER, CLIENT_METRICS, SOURCES, TYPES, resource
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the entries or the error of each resource."""
    wanted = DescribeConfigsRequest(resources=[_query(each) for each in request.resources])
    response = await call.serve(describe_configs.API, wanted)
    results = [
        _result(asked, found.error, [_entry(entry, request) for entry in found.entries])
        for asked, found in zip(request.resources, response.resources, strict=True)
    ]
    return call.answer(results=results)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each resource."""
    return call.answer(results=[_result(asked, error, []) for asked in request.resources])


def _query(asked: Message) -> ConfigQuery:
    return ConfigQuery(
        resource=resource(asked.resource_type, asked.resource_name),
        keys=asked.configuration_keys or (),
        is_of_all_brokers=bool(asked.resource_type == BROKER and not asked.resource_name),
    )


def _result(asked: Message, error: KafkaError | None, entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message_of(error),
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "configs": entries,
    }


def _entry(entry: ConfigEntry, request: Message) -> dict[str, Any]:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.is_read_only,
        "config_source": SOURCES[entry.source],
        "is_sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": SOURCES[synonym.source]} for synonym in synonyms
        ],
        "config_type": TYPES[entry.type],
        "documentation": entry.documentation if getattr(request, "include_documentation", False) else None,
    }


def _is_cached(request: Message) -> bool:
    """Return whether all resources are topics or brokers: client metrics subscriptions are read from the store."""
    return all(asked.resource_type != CLIENT_METRICS for asked in request.resources)


TRANSLATION = Translation(
    api=describe_configs.API,
    serve=serve,
    refuse=refuse,
    wide=WideArrays(("resources",), ("results",), part=5, once=True),
    is_cached=_is_cached,
)
