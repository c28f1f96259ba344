"""DescribeClientQuotas and AlterClientQuotas in Kafka's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.base.quotas import Entity, EntityPart, QuotaChange, QuotaFilter, QuotaMatch
from sparklog.broker.apis import client_quotas
from sparklog.broker.apis.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays

MAX_PARTS = 10
"""Maximum parts of an entity that are read. A valid entity has at most three."""


async def _describe(call: KafkaCall, request: Message) -> Message:
    wanted = DescribeClientQuotasRequest(
        filters=[_filter(component) for component in request.components], strict=request.strict
    )
    response = await call.serve(client_quotas.DESCRIBE_CLIENT_QUOTAS, wanted)
    entries = [
        {
            "entity": [_part(part) for part in quota.entity],
            "values": [{"key": key, "value": value} for key, value in sorted(quota.values.items())],
        }
        for quota in response.quotas
    ]
    return call.answer(error_message=None, entries=entries)


async def _alter(call: KafkaCall, request: Message) -> Message:
    wanted = AlterClientQuotasRequest(
        changes=[
            QuotaChange(
                entity=_entity(entry.entity),
                values={op.key: op.value for op in entry.ops if not op.remove},
                removed=[op.key for op in entry.ops if op.remove],
            )
            for entry in request.entries
        ],
        validate_only=request.validate_only,
    )
    response = await call.serve(client_quotas.ALTER_CLIENT_QUOTAS, wanted)
    results = zip(request.entries, response.changes, strict=True)
    return call.answer(entries=[_altered_entity(entry, result.error) for entry, result in results])


def _filter(component: Message) -> QuotaFilter:
    if component.match_type not in QuotaMatch._value2member_map_:
        raise InvalidRequest(f"Unexpected match type: {component.match_type}")
    return QuotaFilter(type=component.entity_type, match=QuotaMatch(component.match_type), name=component.match)


def _entity(parts: Sequence[Message]) -> Entity:
    """Return the entity, with at most MAX_PARTS parts. Duplicate parts stay, for the check."""
    named = (EntityPart(part.entity_type, part.entity_name) for part in parts[:MAX_PARTS])
    return tuple(sorted(named, key=lambda part: part.type))


def _part(part: EntityPart) -> dict[str, Any]:
    return {"entity_type": part.type, "entity_name": part.name}


def _altered_entity(entry: Message, error: KafkaError | None) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message_of(error),
        "entity": [
            {"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity[:MAX_PARTS]
        ],
    }


def _refuse_to_describe(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=str(error), entries=None)


def _refuse_to_alter(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(entries=[_altered_entity(entry, error) for entry in request.entries])


DESCRIBE_CLIENT_QUOTAS = Translation(
    api=client_quotas.DESCRIBE_CLIENT_QUOTAS, serve=_describe, refuse=_refuse_to_describe
)
ALTER_CLIENT_QUOTAS = Translation(
    api=client_quotas.ALTER_CLIENT_QUOTAS,
    serve=_alter,
    refuse=_refuse_to_alter,
    wide=WideArrays(("entries",), ("entries",)),
)
