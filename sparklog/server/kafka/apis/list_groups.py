"""ListGroups in Kafka's protocol: filters by state from version 4 on, by type from version 5 on."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import group_apis
from sparklog.group.requests import ListGroups
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    wanted = ListGroups(states=getattr(request, "states_filter", ()), types=getattr(request, "types_filter", ()))
    response = await call.broker.serve(group_apis.LIST_GROUPS, wanted)
    return call.answer(
        error_code=response.error,
        groups=[
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.type,
            }
            for group in response.groups
        ],
    )


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, groups=[])


TRANSLATION = Translation(api=group_apis.LIST_GROUPS, serve=serve, refuse=refuse)
