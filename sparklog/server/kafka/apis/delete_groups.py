"""DeleteGroups in Kafka's protocol."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import group_apis
from sparklog.group.requests import DeleteGroups
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation, Wide


async def serve(call: KafkaCall, request: Message) -> Message:
    response = await call.broker.serve(group_apis.DELETE_GROUPS, DeleteGroups(group_ids=request.groups_names))
    return _answer(call, response.errors)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return _answer(call, dict.fromkeys(request.groups_names, error))


def _answer(call: KafkaCall, errors: Mapping[str, KafkaError | None]) -> Message:
    return call.answer(results=[{"group_id": group_id, "error_code": error} for group_id, error in errors.items()])


TRANSLATION = Translation(
    api=group_apis.DELETE_GROUPS, serve=serve, refuse=refuse, wide=Wide(("groups_names",), ("results",))
)
